/* A child made without fork, so that nobody is told of it, begins anew: what its only thread noted
 * for itself is of its parent. Argument: who begins, that thread or another one first; or that thread, as
 * the first process of a pid namespace, and its parent was that of another: both have the same pid. Exit
 * code 77: there are no such namespaces to be had. */
#include <pthread.h>
#include <sched.h>
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

/* Goes on as the first process of a pid namespace. */
static void become_first(void)
{
    int status;
    if (unshare(CLONE_NEWPID))
        _exit(77);
    pid_t child = fork();
    if (child) {
        OK(waitpid(child, &status, 0) != child);
        exit(WEXITSTATUS(status));
    }
}

int main(int count, char **argument)
{
    pthread_t thread;
    int status;
    CHECK(count == 2);
    long same_pid = strcmp(argument[1], "same pid") == 0 ? CLONE_NEWPID : 0;
    if (same_pid)
        become_first();
    begin();
    work();
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD | same_pid, 0, 0, 0, 0);
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
