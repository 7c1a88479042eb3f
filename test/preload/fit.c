/* What a device has, by all that say it, and how much of a kind of memory there is: 8 MiB at a time,
 * until there is no more. */
#include <cuda_runtime_api.h>

#include "driver_case.h"

#define PIECE (8 * MIB)

static const CUmemAllocationProp granules = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUDA_ARRAY_DESCRIPTOR flat = {1024, 2048, CU_AD_FORMAT_FLOAT, 1};

static CUresult take(const char *kind)
{
    CUdeviceptr pointer;
    CUarray array;
    CUmemGenericAllocationHandle handle;
    void *host;
    if (!strcmp(kind, "pool"))
        return cuMemAllocAsync(&pointer, PIECE, NULL);
    if (!strcmp(kind, "array"))
        return cuArrayCreate(&array, &flat);
    if (!strcmp(kind, "vmm"))
        return cuMemCreate(&handle, PIECE, &granules, 0);
    if (!strcmp(kind, "runtime"))
        return (CUresult)cudaMalloc(&host, PIECE);
    return cuMemAlloc(&pointer, PIECE);
}

int main(int count, char **argument)
{
    struct cudaDeviceProp properties;
    size_t total, available, said;
    int pieces = 0;
    CHECK(count == 2 && cudaFree(NULL) == 0);
    OK(cudaGetDeviceProperties(&properties, 0));
    OK(cuDeviceTotalMem(&said, 0));
    OK(cudaMemGetInfo(&available, &total));
    printf("%zu %zu %zu %zu\n", properties.totalGlobalMem, said, total, available);
    while (take(argument[1]) == CUDA_SUCCESS)
        pieces++;
    OK(cudaMemGetInfo(&available, &total));
    printf("%d pieces, %zu left\n", pieces, available);
    return 0;
}
