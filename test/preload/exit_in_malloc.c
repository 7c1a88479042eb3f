/* A signal's handler that exits, with code 7, wherever a program of one thread stands in its malloc.
 * Argument: microseconds until the signal. */
#include <cuda_runtime.h>
#include <signal.h>
#include <sys/time.h>

#include "case.h"

static void on_signal(int number)
{
    (void)number;
    exit(7);
}

int main(int count, char **argument)
{
    void *volatile kept[64] = {0};
    void *block;
    unsigned random = 1;
    struct itimerval timer = {0};
    OK(cudaMalloc(&block, 1000));
    CHECK(count == 2 && signal(SIGALRM, on_signal) != SIG_ERR);
    timer.it_value.tv_usec = atoi(argument[1]);
    OK(setitimer(ITIMER_REAL, &timer, NULL));
    for (;;) {
        random = random * 1103515245 + 12345;
        void *volatile *slot = &kept[random >> 16 & 63];
        free(*slot);
        *slot = malloc(random >> 8 & 0x3fff);
    }
}
