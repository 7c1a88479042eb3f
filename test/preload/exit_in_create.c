/* A signal's handler exits, wherever the program is with threads that it makes and joins: a lock of
 * libc's may be held for good. Argument: microseconds. */
#include "driver_case.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

enum { THREADS = 16 };

static void end(int signal)
{
    (void)signal;
    exit(7);
}

static void *pass(void *unused)
{
    return unused;
}

int main(int count, char **argument)
{
    struct itimerval timer = {0};
    CHECK(count == 2);
    begin();
    OK(cuMemFree(make(1000)));
    CHECK(signal(SIGALRM, end) != SIG_ERR);
    timer.it_value.tv_usec = atoi(argument[1]);
    OK(setitimer(ITIMER_REAL, &timer, NULL));
    for (;;) {
        pthread_t thread[THREADS];
        for (int i = 0; i < THREADS; i++)
            OK(pthread_create(&thread[i], NULL, pass, NULL));
        for (int i = 0; i < THREADS; i++)
            OK(pthread_join(thread[i], NULL));
    }
}
