/* A thread's first call of the runtime makes the context current for it, also if that call is
 * cudaFree. */
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "driver_case.h"

static void *block[2];

static void *other_thread(void *unused)
{
    CUcontext context = NULL;
    SAY(cudaFree(block[0]));
    SAY(cuCtxGetCurrent(&context));
    SAY(context != NULL);
    SAY(cudaFree(block[1]));
    return unused;
}

int main(void)
{
    pthread_t thread;
    OK(cudaMalloc(&block[0], 1000));
    OK(cudaMalloc(&block[1], 1000));
    OK(pthread_create(&thread, NULL, other_thread, NULL));
    OK(pthread_join(thread, NULL));
    return 0;
}
