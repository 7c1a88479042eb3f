/* A program that uses SIGUSR1 itself, from before CUDA begins or from later; with SA_SIGINFO or
 * without. */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <string.h>

#include "case.h"

static volatile int caught;

static void plain(int number)
{
    caught += number == SIGUSR1;
}

static void informed(int number, siginfo_t *info, void *context)
{
    (void)context;
    caught += number == SIGUSR1 && info->si_pid == getpid();
}

int main(int count, char **argument)
{
    struct sigaction action = {0}, old;
    void *block;
    CHECK(count == 3);
    if (strcmp(argument[2], "siginfo") == 0) {
        action.sa_sigaction = informed;
        action.sa_flags = SA_SIGINFO;
    } else {
        action.sa_handler = plain;
    }
    if (strcmp(argument[1], "before") == 0)
        OK(sigaction(SIGUSR1, &action, NULL));
    OK(cudaMalloc(&block, 1000));
    if (strcmp(argument[1], "after") == 0)
        OK(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < 5; i++)
        kill(getpid(), SIGUSR1);
    SAY(caught);
    OK(sigaction(SIGUSR1, NULL, &old));
    SAY(old.sa_handler == action.sa_handler || old.sa_sigaction == action.sa_sigaction);
    SAY(cudaFree(block));
    return 0;
}
