/* A thread without a context (as NCCL's) takes granules when our cache holds the device's memory:
 * it gets them, as natively, and none of the context's books suffer. */
#include "driver_case.h"

#include <pthread.h>

static void *take_granules(void *bytes)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    CUcontext current;
    size_t size = *(size_t *)bytes;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuCtxGetCurrent(&current));
    SAY(current == NULL);
    SAY(cuMemCreate(&handle, size, &properties, 0));
    SAY(cuMemAddressReserve(&range, size, 0, 0, 0));
    SAY(cuMemMap(range, size, 0, handle, 0));
    SAY(cuMemSetAccess(range, size, &access, 1));
    SAY(cuMemUnmap(range, size));
    SAY(cuMemAddressFree(range, size));
    SAY(cuMemRelease(handle));
    SAY(cuMemFree(0x1000));
    OK(cuCtxGetCurrent(&current));
    SAY(current == NULL);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    size_t available, total;
    begin();
    OK(cuMemGetInfo(&available, &total));
    size_t most = total / 4 * 3 / (2 * MIB) * (2 * MIB);
    OK(cuMemFree(make(most)));
    OK(pthread_create(&thread, NULL, take_granules, &most));
    OK(pthread_join(thread, NULL));
    OK(cuMemFree(make(most)));
    return 0;
}
