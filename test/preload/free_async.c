/* cudaFreeAsync and cuMemFreeAsync of memory that cudaMalloc gave: 4 requests, 4 frees. */
#include <cuda_runtime_api.h>

#include "driver_case.h"

int main(void)
{
    void *a, *b;
    cudaStream_t stream;
    OK(cudaMalloc(&a, 4 * MIB));
    OK(cudaMalloc(&b, 4 * MIB));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    write_all((CUstream)stream, 1000000, (CUdeviceptr)a, 4 * MIB);
    SAY(cudaFreeAsync(a, stream));
    SAY(cuMemFreeAsync((CUdeviceptr)b, (CUstream)stream));
    SAY(cudaGetLastError());
    for (int i = 0; i < 2; i++) {
        OK(cudaMalloc(&a, 4 * MIB));
        write_all(NULL, 1000, (CUdeviceptr)a, 4 * MIB);
        SAY(cudaFree(a));
    }
    return 0;
}
