#include "seed.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOUCHED 4096 /* a simulated device has no gigabytes to fill */

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

void *try_take(size_t bytes)
{
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* answered here */
        return NULL;
    }
    must(error, "cudaMalloc");
    must(cudaMemset(memory, 1, bytes < TOUCHED ? bytes : TOUCHED), "cudaMemset");
    return memory;
}

void *take(size_t bytes)
{
    void *memory = try_take(bytes);
    must(memory ? cudaSuccess : cudaErrorMemoryAllocation, "cudaMalloc");
    return memory;
}

void give(void *memory)
{
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    must(cudaFree(memory), "cudaFree");
}

void point(const char *name)
{
    char line[16];
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    printf("point %s\n", name);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && !strchr(line, '\n'))
        continue;
}
