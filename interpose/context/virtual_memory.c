/* Mapped memory on the real driver: addresses of our own, physical memory in handles. These
 * functions need no context and wait for no work. */
#include "interpose/context/virtual_memory.h"

#include "interpose/context/context.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

#define GRAIN (2 * MIB)
#define ADDRESSES_PER_BYTE 8 /* of the device's memory */

/* Bit i is device i's. used: it has had a context. settled: it has access to the memory that others
 * had mapped before. of: the devices that may use this device's mapped memory, besides itself. */
static struct WIPED peers {
    _Atomic uint64_t used, settled, of[PEER_DEVICES];
} peers;
static const struct wiped wiped WIPED_ENTRY = {&peers, sizeof peers};

/* Calls the driver with this thread's capture mode relaxed, so that no capture is invalidated. */
#define RELAXED(result, call)                                                                      \
    do {                                                                                           \
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;                                 \
        real()->cuThreadExchangeStreamCaptureMode(&mode);                                          \
        result = real()->call;                                                                     \
        real()->cuThreadExchangeStreamCaptureMode(&mode);                                          \
    } while (0)

/* Gives something back. Nothing refers to it any more, so a refused call is tried once more. */
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

static _Atomic int no_exports; /* the driver reported support, and then refused */

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
    /* As network cards may use cudaMalloc's memory. */
    if (has(context->device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        wanted.allocFlags.gpuDirectRDMACapable = 1;
    if (driver_lends(context->device))
        wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return wanted;
}

int driver_range_reserve(void *device, uint64_t *address, uint64_t *bytes)
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

/* Gives access to the device itself and its peers. A device that becomes a peer meanwhile is seen
 * here or by the walk in driver_device_used. */
int driver_chunk_allow(void *device, uint64_t address, uint64_t bytes)
{
    const struct context *context = device;
    const _Atomic uint64_t *others = &peers.of[context->device % PEER_DEVICES];
    CUmemAccessDesc access[PEER_DEVICES + 1];
    uint64_t now;
    CUresult result;
    do {
        size_t count = 0;
        now = atomic_load(others);
        for (int i = -1; i < PEER_DEVICES; i++)
            if (i < 0 || now >> i & 1)
                access[count++] =
                    (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                   .id = i < 0 ? context->device : i},
                                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        RELAXED(result, cuMemSetAccess(address, bytes, access, count));
    } while (result == CUDA_SUCCESS && now != atomic_load(others));
    return (int)result;
}

int driver_chunk_unmap(void *device, uint64_t address, uint64_t bytes)
{
    CUresult result;
    (void)device;
    TWICE(result, cuMemUnmap(address, bytes));
    return (int)result;
}

static int can_reach(CUdevice device, CUdevice owner)
{
    int can = 0;
    return real()->cuDeviceCanAccessPeer(&can, device, owner) == CUDA_SUCCESS && can;
}

uint64_t driver_peers_of(CUdevice device)
{
    return device < PEER_DEVICES ? atomic_load(&peers.of[device]) : 0;
}

int driver_has_strangers(void)
{
    int count = (int)process.page->device_count;
    for (CUdevice device = 0; device < count; device++)
        for (CUdevice owner = 0; owner < count; owner++)
            if (device != owner && !can_reach(device, owner))
                return 1;
    return 0;
}

/* Returns 1 if the access is settled. No call of the program may fail because of it, so a refused
 * call is tried once more. */
static int allow_peer(CUdevice device, CUdevice owner, driver_allow *allow_more)
{
    if (!can_reach(device, owner)) {
        if (process.config.options.expandable == EXPANDABLE_TRUE)
            process_warn(
                "device %d cannot reach mapped memory of device %d: it can be copied there "
                "by cudaMemcpyPeer, or with CACHALOT_CONF=expandable_segments:False",
                device, owner);
        return 1;
    }
    atomic_fetch_or(&peers.of[owner], (uint64_t)1 << device);
    for (int tries = 0; tries < 2; tries++)
        if (!domain_allow(process.domain, (unsigned)owner) && !allow_more(owner, device))
            return 1;
    process_warn("the driver does not let device %d reach all mapped memory of device %d: use "
                 "CACHALOT_CONF=expandable_segments:False",
                 device, owner);
    return 0;
}

/* If two devices are used for the first time at once, at least one sees the other. No thread goes
 * on before the walk over the mapped memory is complete, so two threads may do the same walk. The
 * next context of the device tries again what the driver refused. */
void driver_device_used(CUdevice device, driver_allow *allow_more)
{
    if (device < 0 || device >= PEER_DEVICES || atomic_load(&peers.settled) >> device & 1)
        return;
    uint64_t bit = (uint64_t)1 << device, used = atomic_fetch_or(&peers.used, bit);
    int settled = 1;
    for (CUdevice other = 0; other < PEER_DEVICES; other++)
        if (other != device && used >> other & 1)
            settled &=
                allow_peer(device, other, allow_more) & allow_peer(other, device, allow_more);
    if (settled)
        atomic_fetch_or(&peers.settled, bit);
}
