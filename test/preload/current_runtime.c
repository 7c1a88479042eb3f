/* A thread's cudart makes its context current again, where the program took it away, whatever is
 * asked of it: also what the thread's cache has. */
#include "case.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

static CUcontext context;

static void say_current(void)
{
    CUcontext current;
    OK(cuCtxGetCurrent(&current));
    SAY(current == context);
}

int main(void)
{
    void *block, *other;
    OK(cudaMalloc(&block, 1000));
    OK(cudaMalloc(&other, 1000));
    OK(cudaFree(other));
    OK(cuCtxPopCurrent(&context));
    SAY(cudaMalloc(&other, 1000));
    say_current();
    OK(cuCtxSetCurrent(NULL));
    SAY(cudaFree(block));
    say_current();
    OK(cuCtxPopCurrent(&context));
    OK(cuCtxPushCurrent(context));
    SAY(cudaFree(other));
    SAY(cudaMalloc(&other, 1000));
    say_current();
    OK(cuCtxSetCurrent(NULL));
    SAY(cudaSetDevice(0));
    SAY(cudaFree(other));
    say_current();
    return 0;
}
