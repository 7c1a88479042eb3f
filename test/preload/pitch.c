/* Pitched memory by the runtime and by the driver: 9 requests, 9 frees. */
#include <cuda_runtime_api.h>

#include "driver_case.h"

int main(void)
{
    void *rows;
    size_t pitch;
    struct cudaPitchedPtr box;
    static const unsigned widths[] = {1, 511, 512, 513, 100000};
    for (int i = 0; i < 5; i++) {
        SAY(cudaMallocPitch(&rows, &pitch, widths[i], 7));
        SAY(pitch);
        SAY(cudaMemset2D(rows, pitch, 1, widths[i], 7));
        SAY(cudaFree(rows));
    }
    SAY(cudaMalloc3D(&box, (struct cudaExtent){100, 10, 3}));
    SAY(box.pitch);
    SAY(cudaFree(box.ptr));
    for (unsigned element = 0; element <= 17; element++) {
        CUdeviceptr pointer = 0;
        pitch = 0;
        SAY(cuMemAllocPitch(&pointer, &pitch, 1000, 3, element));
        SAY(pitch);
        if (pointer)
            SAY(cuMemFree(pointer));
    }
    CUdeviceptr pointer;
    SAY(cuMemAllocPitch(NULL, &pitch, 1000, 3, 4));
    SAY(cuMemAllocPitch(&pointer, NULL, 1000, 3, 4));
    SAY(cuMemAllocPitch(&pointer, &pitch, 0, 3, 4));
    SAY(cuMemAllocPitch(&pointer, &pitch, 3, 0, 4));
    SAY(cuMemAllocPitch(&pointer, &pitch, (size_t)-1, 1, 4));
    SAY(cuMemAllocPitch(&pointer, &pitch, (size_t)1 << 40, (size_t)1 << 40, 4));
    SAY(cudaMallocPitch(&rows, &pitch, 0, 3));
    SAY(cudaGetLastError());
    return 0;
}
