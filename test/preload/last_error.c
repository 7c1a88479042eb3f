/* A plugin that makes an error: its own run-time remembers it, and no other. */
#include <cuda_runtime_api.h>

#include "case.h"

int run(void);
int run(void)
{
    void *block;
    SAY(cudaMalloc(&block, 1000));
    SAY(cudaFree(block));
    SAY(cudaGetLastError());
    SAY(cudaSetDevice(99));
    SAY(cudaMalloc(&block, (size_t)1 << 60));
    SAY(cudaGetLastError());
    return 0;
}
