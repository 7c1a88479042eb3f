/* 2 requests, 1 free; then the program ends by the way named. */
#include <cuda_runtime_api.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#include "case.h"

static void *exit_from_here(void *unused)
{
    exit(7);
    return unused;
}

/* Goes on while the process exits under it. */
static void *go_on(void *unused)
{
    void *block;
    for (;;)
        if (cudaMalloc(&block, 5000) == cudaSuccess)
            cudaFree(block);
    return unused;
}

static struct {
    uintptr_t begin, end;
} ours;

static int find_ours(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size, (void)unused;
    for (int i = 0; i < object->dlpi_phnum && strstr(object->dlpi_name, "libcachalot"); i++)
        if (object->dlpi_phdr[i].p_flags & PF_X) {
            ours.begin = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
            ours.end = ours.begin + object->dlpi_phdr[i].p_memsz;
        }
    return 0;
}

static uintptr_t interrupted_at(const ucontext_t *context)
{
#ifdef __x86_64__
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t)context->uc_mcontext.pc;
#endif
}

static const struct itimerval soon = {.it_value = {.tv_usec = 3000}};

/* Not in malloc, say, where exit may natively wait for ever. */
static void exit_by_handler(int signal, siginfo_t *unused, void *context)
{
    uintptr_t at = interrupted_at(context);
    (void)signal, (void)unused;
    if (at >= ours.begin && at < ours.end)
        exit(9);
    setitimer(ITIMER_REAL, &soon, NULL);
}

/* What is asked for never fits: all caches are emptied each time. */
static void *ask_too_much(void *block)
{
    for (;;)
        cudaMalloc(&block, 8191 * MIB);
    return block;
}

/* The handler finds this thread in its own cache, or anywhere else in us. */
static void exit_at_any_moment(void)
{
    const struct sigaction action = {.sa_sigaction = exit_by_handler, .sa_flags = SA_SIGINFO};
    pthread_t thread;
    sigset_t alarm;
    void *block;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    OK(pthread_sigmask(SIG_BLOCK, &alarm, NULL)); /* the other thread's */
    OK(pthread_create(&thread, NULL, ask_too_much, NULL));
    OK(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL));
    dl_iterate_phdr(find_ours, NULL);
    OK(sigaction(SIGALRM, &action, NULL));
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    for (;;)
        if (cudaMalloc(&block, 5000) == cudaSuccess)
            cudaFree(block);
}

int main(int count, char **argument)
{
    void *kept, *freed;
    pthread_t thread;
    CHECK(count == 2);
    OK(cudaMalloc(&kept, 1000));
    OK(cudaMalloc(&freed, 3 * MIB));
    OK(cudaFree(freed));
    printf("so far\n");
    fflush(stdout);
#define WAY(name, call)                                                                            \
    if (strcmp(argument[1], name) == 0) {                                                          \
        call;                                                                                      \
    }
    WAY("return", return 3)
    WAY("exit", exit(4))
    WAY("exit from a thread", OK(pthread_create(&thread, NULL, exit_from_here, NULL)); pause())
    WAY("end of the main thread", pthread_create(&thread, NULL, exit_from_here, NULL);
        pthread_exit(NULL))
    WAY("threads alive", for (int i = 0; i < 4; i++) OK(pthread_create(&thread, NULL, go_on, NULL));
        usleep(20000); exit(5))
    WAY("handler", exit_at_any_moment())
    WAY("_exit", _exit(6))
    WAY("quick_exit", quick_exit(8))
    WAY("abort", abort())
    WAY("term", raise(SIGTERM))
    WAY("kill", raise(SIGKILL))
    WAY("segv", raise(SIGSEGV))
    return 98;
}
