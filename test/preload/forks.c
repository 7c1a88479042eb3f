/* Children of a process whose threads ask for memory all the time: none has CUDA, and none waits for
 * what a thread of the parent held. */
#include <cuda_runtime.h>
#include <pthread.h>
#include <sys/wait.h>

#include "case.h"

static void *work(void *unused)
{
    for (;;) {
        void *block[20];
        for (size_t i = 0; i < 20; i++)
            OK(cudaMalloc(&block[i], i * MIB + 1));
        for (size_t i = 0; i < 20; i++)
            OK(cudaFree(block[i]));
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    void *block;
    int status, wrong = 0;
    OK(cudaMalloc(&block, 100));
    for (int i = 0; i < 4; i++)
        OK(pthread_create(&thread, NULL, work, NULL));
    for (int i = 0; i < 100 && !wrong; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(5);
            _exit(cudaMalloc(&block, 100) == 0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        wrong = status;
    }
    SAY(wrong);
    _exit(0);
}
