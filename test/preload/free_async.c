/* cudaFreeAsync and cuMemFreeAsync of memory that cudaMalloc gave: 4 requests, 4 frees. Without a
 * context, or in a stream that is none, they free nothing. */
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
    CUstream gone;
    CUcontext context;
    OK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    OK(cuStreamDestroy(gone));
    OK(cuCtxGetCurrent(&context));
    OK(cuCtxSetCurrent(NULL));
    SAY(cuMemFreeAsync((CUdeviceptr)a, NULL));
    SAY(cuMemFreeAsync((CUdeviceptr)a, CU_STREAM_PER_THREAD));
    OK(cuCtxSetCurrent(context));
    SAY(cuMemFreeAsync((CUdeviceptr)a, gone));
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
