/* A program that takes a refused allocation in five ways: it ends, asks again, crashes, goes on with
 * other output, and hangs. What a capture allocates is no request. */
#include <cuda_runtime_api.h>

#include "driver_case.h"

#define HITS 8

/* The error stays with its call: the next call succeeds. */
static void *take(size_t bytes)
{
    void *block = NULL;
    int error = cudaMalloc(&block, bytes);
    CHECK(error == (block ? 0 : 2));
    CHECK((int)cudaGetLastError() == error && cudaGetLastError() == 0);
    return block;
}

static void capture(CUstream stream)
{
    CUdeviceptr pointer;
    CUgraph graph;
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemAllocAsync(&pointer, MIB, stream));
    OK(cuMemFreeAsync(pointer, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
}

int main(void)
{
    CUdeviceptr pooled;
    CUstream stream;
    void *block, *host = NULL;
    CHECK(cudaSetDevice(0) == 0 && cudaFree(NULL) == 0);
    if (!(block = take(4 * KIB)))
        return 3;
    OK(cudaFree(block));
    for (int i = 0; i < HITS; i++)
        OK(cudaFree((block = take(4 * KIB)) ? block : take(4 * KIB)));
    OK(cudaFree(take(20 * MIB)));
    if (!(block = take(20 * MIB)))
        *(volatile char *)block = 1;
    OK(cudaFree(block));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    capture(stream);
    int error = cuMemHostAlloc(&host, MIB, 0);
    CHECK(error == 0 || error == 2);
    printf("%s\n", host ? "fast" : "slow");
    fflush(stdout);
    if (cuMemAllocAsync(&pooled, MIB, stream))
        pause();
    return 0;
}
