/* A child made without fork, so that nobody is told of it, begins anew: what its only thread noted
 * for itself is of its parent. Argument: who begins, that thread or another one first. */
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "driver_case.h"

#define PAIRS 50

static CUcontext context;

static void work(void)
{
    CUdeviceptr block;
    for (int i = 0; i < PAIRS; i++) {
        OK(cuMemAlloc(&block, 1000));
        OK(cuMemsetD8Async(block, 0, 1000, NULL));
        OK(cuMemFree(block));
    }
}

static void *begin_and_work(void *unused)
{
    context = begin();
    work();
    return unused;
}

int main(int count, char **argument)
{
    pthread_t thread;
    int status;
    CHECK(count == 2);
    begin();
    work();
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        alarm(60);
        if (strcmp(argument[1], "other") == 0) {
            OK(pthread_create(&thread, NULL, begin_and_work, NULL));
            OK(pthread_join(thread, NULL));
            OK(cuCtxSetCurrent(context));
        } else {
            begin();
        }
        work();
        exit(3);
    }
    OK(waitpid(child, &status, 0) != child);
    SAY(status);
    work();
    return 0;
}
