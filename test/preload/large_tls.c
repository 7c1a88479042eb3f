/* No thread of ours can be made, since each would need more than its stack has for what threads have
 * of their own; and the program ends in a handler on a stack of 8 KiB. */
#include "driver_case.h"

#include <signal.h>
#include <sys/mman.h>

enum { STACK = 8192, GUARD = 12288 };

static _Thread_local char large[MIB];

static void end(int signal)
{
    (void)signal;
    exit(9);
}

int main(int count, char **argument)
{
    char *memory = mmap(NULL, GUARD + STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory + GUARD, .ss_size = STACK};
    const struct sigaction action = {.sa_handler = end, .sa_flags = SA_ONSTACK};
    CHECK(memory != MAP_FAILED && mprotect(stack.ss_sp, STACK, PROT_READ | PROT_WRITE) == 0);
    large[count] = argument[0][0];
    begin();
    OK(cuMemFree(make(1000)));
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGTERM, &action, NULL) == 0);
    raise(SIGTERM);
    return large[count];
}
