/* exit on a stack that is small: a signal's (handler), or a thread's (thread; first: and CUDA begins
 * there, too). */
#include <cuda_runtime.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static char stack[8192]; /* SIGSTKSZ */

static void on_signal(int number)
{
    (void)number;
    exit(9);
}

static void *work(void *unused)
{
    void *block;
    (void)unused;
    exit(cudaMalloc(&block, 1000) ? 3 : 9);
}

int main(int count, char **argument)
{
    void *block;
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    pthread_attr_t attributes;
    pthread_t thread;
    if (count != 2 || (strcmp(argument[1], "first") && cudaMalloc(&block, 1000)))
        return 2;
    if (strcmp(argument[1], "handler") == 0) {
        sigaltstack(&other, NULL);
        sigaction(SIGTERM, &action, NULL);
        raise(SIGTERM);
    }
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    return pthread_create(&thread, &attributes, work, NULL) || pthread_join(thread, NULL);
}
