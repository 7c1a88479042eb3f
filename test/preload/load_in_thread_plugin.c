/* A plugin whose constructor waits for a thread that uses the runtime. */
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "case.h"

static void *allocate(void *unused)
{
    void *block;
    SAY(cudaSetDevice(0));
    SAY(cudaMalloc(&block, 1000));
    SAY(cudaFree(block));
    SAY(cudaDeviceReset());
    return unused;
}

__attribute__((constructor)) static void load(void)
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, allocate, NULL));
    OK(pthread_join(thread, NULL));
}
