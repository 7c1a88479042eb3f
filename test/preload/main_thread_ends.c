/* The main thread ends by pthread_exit; the process ends with the last thread. With an argument CUDA
 * begins after that. */
#include <cuda_runtime.h>
#include <pthread.h>

#include "case.h"

static void *work(void *unused)
{
    void *block;
    usleep(100000);
    SAY(cudaMalloc(&block, 100000));
    SAY(cudaFree(block));
    return unused;
}

static void at_end(void)
{
    printf("at exit\n");
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *block;
    OK(atexit(at_end));
    (void)argv;
    if (argc == 1)
        OK(cudaMalloc(&block, 1000));
    OK(pthread_create(&thread, NULL, work, NULL));
    OK(pthread_detach(thread));
    pthread_exit(NULL);
}
