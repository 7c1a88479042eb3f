/* Every kind of memory that goes past the cache, made and ended; 1 MiB each. With an argument: made
 * only. */
#include "driver_case.h"

static void arrays(int end)
{
    CUarray flat, deep;
    CUmipmappedArray levels;
    const CUDA_ARRAY_DESCRIPTOR shape = {1024, 256, CU_AD_FORMAT_FLOAT, 1};
    const CUDA_ARRAY3D_DESCRIPTOR full = {64, 64, 64, CU_AD_FORMAT_HALF, 2, 0};
    SAY(cuArrayCreate(&flat, &shape));
    SAY(cuArray3DCreate(&deep, &full));
    SAY(cuMipmappedArrayCreate(&levels, &full, 3));
    if (!end)
        return;
    SAY(cuArrayDestroy(flat));
    SAY(cuArrayDestroy(deep));
    SAY(cuMipmappedArrayDestroy(levels));
}

static void granules(int end)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    SAY(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    if (end)
        SAY(cuMemRelease(handle));
}

static void pools(int end)
{
    CUmemoryPool pool;
    CUdeviceptr a, b;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    SAY(cuMemPoolCreate(&pool, &properties));
    SAY(cuMemAllocAsync(&a, MIB, NULL));
    SAY(cuMemAllocFromPoolAsync(&b, MIB, pool, NULL));
    if (!end)
        return;
    SAY(cuMemFreeAsync(a, NULL));
    SAY(cuMemFree(b)); /* takes memory of pools too */
    SAY(cuMemFree(b)); /* a second time it is nobody's */
}

int main(int count, char **argument)
{
    int end = count == 1;
    CUdeviceptr managed;
    void *host, *more;
    (void)argument;
    begin();
    SAY(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    SAY(cuMemHostAlloc(&host, MIB, 0));
    SAY(cuMemAllocHost(&more, MIB));
    if (end) {
        SAY(cuMemFree(managed));
        SAY(cuMemFreeHost(host));
        SAY(cuMemFreeHost(more));
    }
    arrays(end);
    granules(end);
    pools(end);
    SAY(cuCtxSynchronize());
    return 0;
}
