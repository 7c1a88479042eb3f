/* Mapped memory by way of the real driver: addresses of our own, physical memory in handles. None
 * of these functions needs a context; they wait for no work. */
#include "interpose/driver_map.h"

#include "interpose/process.h"
#include "interpose/real.h"

#define GRAIN (2 * MIB)
#define ADDRESSES_PER_BYTE 8 /* of the device's memory */

/* Calls with this thread's capture mode relaxed, so that no capture is invalidated. */
#define RELAXED(result, call)                                                                      \
    do {                                                                                           \
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;                                 \
        real()->cuThreadExchangeStreamCaptureMode(&mode);                                          \
        result = real()->call;                                                                     \
        real()->cuThreadExchangeStreamCaptureMode(&mode);                                          \
    } while (0)

/* What is given back is nobody's any more: who is refused once asks once more. */
#define TWICE(result, call)                                                                        \
    do {                                                                                           \
        RELAXED(result, call);                                                                     \
        if (result != CUDA_SUCCESS)                                                                \
            RELAXED(result, call);                                                                 \
    } while (0)

static int has(CUdevice device, CUdevice_attribute attribute)
{
    int value = 0;
    return real()->cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value;
}

static _Atomic int no_exports; /* the driver says it can, and then cannot */

int driver_lends(CUdevice device)
{
    return !no_exports &&
           has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

static CUmemAllocationProp properties(const struct context *context)
{
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context->device}};
    /* As cudaMalloc's memory may be used by network cards. */
    if (has(context->device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        wanted.allocFlags.gpuDirectRDMACapable = 1;
    if (driver_lends(context->device))
        wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return wanted;
}

int driver_range_reserve(void *device, uint64_t *address, uint64_t *bytes, uint64_t *total)
{
    const struct context *context = device;
    const CUmemAllocationProp wanted = properties(context);
    size_t memory = 0, grain = 0;
    CUdeviceptr start = 0;
    CUresult result;
    if (!has(context->device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
        real()->cuMemGetAllocationGranularity(&grain, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
            CUDA_SUCCESS ||
        !grain || GRAIN % grain ||
        real()->cuDeviceTotalMem_v2(&memory, context->device) != CUDA_SUCCESS)
        return DEVICE_UNSUPPORTED;
    *total = memory;
    *bytes = memory / GRAIN * GRAIN * ADDRESSES_PER_BYTE;
    RELAXED(result, cuMemAddressReserve(&start, *bytes, 0, 0, 0));
    *address = start;
    return (int)result;
}

int driver_range_free(void *device, uint64_t address, uint64_t bytes)
{
    CUresult result;
    (void)device;
    TWICE(result, cuMemAddressFree(address, bytes));
    return (int)result;
}

int driver_chunk_create(void *device, uint64_t bytes, uint64_t *handle)
{
    CUmemAllocationProp wanted = properties(device);
    CUmemGenericAllocationHandle made = 0;
    CUresult result;
    RELAXED(result, cuMemCreate(&made, bytes, &wanted, 0));
    if ((result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED) &&
        wanted.requestedHandleTypes) {
        no_exports = 1;
        wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
        RELAXED(result, cuMemCreate(&made, bytes, &wanted, 0));
    }
    *handle = made;
    return (int)result;
}

int driver_chunk_export(uint64_t handle, int *fd)
{
    CUresult result;
    RELAXED(result,
            cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return (int)result;
}

int driver_chunk_release(void *device, uint64_t bytes, uint64_t handle)
{
    CUresult result;
    (void)device, (void)bytes;
    TWICE(result, cuMemRelease(handle));
    return (int)result;
}

int driver_chunk_map(void *device, uint64_t address, uint64_t bytes, uint64_t handle)
{
    CUresult result;
    (void)device;
    RELAXED(result, cuMemMap(address, bytes, 0, handle, 0));
    return (int)result;
}

/* The device's own and all that have peer access to it, and none that had it. One that gets or
 * loses it meanwhile is seen by this call or by driver_allow_peer's walk. */
int driver_chunk_allow(void *device, uint64_t address, uint64_t bytes)
{
    const struct context *context = device;
    const struct peers *peers = &process->peers[context->device % PEER_DEVICES];
    CUmemAccessDesc access[PEER_DEVICES + 1];
    uint64_t now, before;
    CUresult result;
    do {
        size_t count = 0;
        now = atomic_load(&peers->now);
        before = atomic_load(&peers->before);
        for (int i = -1; i < PEER_DEVICES; i++)
            if (i < 0 || (now | before) >> i & 1)
                access[count++] = (CUmemAccessDesc){
                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                 .id = i < 0 ? context->device : i},
                    .flags = i < 0 || now >> i & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE};
        RELAXED(result, cuMemSetAccess(address, bytes, access, count));
    } while (result == CUDA_SUCCESS && now != atomic_load(&peers->now));
    return (int)result;
}

int driver_chunk_unmap(void *device, uint64_t address, uint64_t bytes)
{
    CUresult result;
    (void)device;
    TWICE(result, cuMemUnmap(address, bytes));
    return (int)result;
}

void driver_allow_peer(CUdevice owner, CUdevice peer, int allowed)
{
    if (owner < 0 || owner >= PEER_DEVICES || peer < 0 || peer >= PEER_DEVICES || owner == peer)
        return;
    struct peers *peers = &process->peers[owner];
    uint64_t bit = (uint64_t)1 << peer;
    pthread_mutex_lock(&process->peers_lock);
    int had = peers->contexts[peer] != 0;
    if (allowed)
        peers->contexts[peer]++;
    else if (had)
        peers->contexts[peer]--;
    int has_it = peers->contexts[peer] != 0;
    if (has_it) {
        atomic_fetch_or(&peers->now, bit);
    } else {
        atomic_fetch_or(&peers->before, bit);
        atomic_fetch_and(&peers->now, ~bit);
    }
    pthread_mutex_unlock(&process->peers_lock);
    if (had == has_it)
        return;
    domain_allow(process->domain, (unsigned)owner);
    ipc_allow_peer(owner, peer, has_it);
}
