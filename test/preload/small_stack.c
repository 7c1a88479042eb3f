/* A signal comes in while a coroutine runs on a stack that is too small for any handler; the program has
 * said where handlers run (sigaltstack). */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "driver_case.h"

#define PAGE 4096
#define STACK 2048

static ucontext_t whole, small;

static void body(void)
{
    raise(SIGUSR1);
}

int main(void)
{
    static char room[64 * KIB];
    stack_t handlers = {.ss_sp = room, .ss_size = sizeof room};
    begin();
    OK(sigaltstack(&handlers, NULL));
    char *memory = mmap(NULL, 17 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    OK(mprotect(memory + 16 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    OK(getcontext(&small));
    small.uc_stack.ss_sp = memory + 16 * PAGE; /* below it is nothing */
    small.uc_stack.ss_size = STACK;
    small.uc_link = &whole;
    makecontext(&small, body, 0);
    OK(swapcontext(&whole, &small));
    SAY(cuInit(0));
    return 0;
}
