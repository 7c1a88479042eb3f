/* Exported: queries and settings of an address. Of mapped memory the driver knows mappings; a block
 * has several, or a part of one. Programs ask about allocations. A program also sends its offset in
 * the range along with an IPC handle, so both must mean the same thing: the block for mapped memory
 * (our handle), the segment for other memory (the driver's handle). */
#include "allocator/share.h"
#include "interpose/context/context.h"
#include "interpose/context/device_ops.h"
#include "interpose/memory/ipc.h"
#include "interpose/memory/uncached.h"
#include "interpose/process/gate.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/memory/retry.h"

/* Our numbers start where the driver's, which count from 1, do not get. */
#define OUR_NAMES ((unsigned long long)1 << 62)
#define PINNED_NAMES (OUR_NAMES | (unsigned long long)1 << 61)

/* An address for which the driver answers as for freed memory. */
#define NOWHERE ((CUdeviceptr)1)

enum found { NOTHING, ORDINARY, MAPPED, PINNED };

static uint64_t start_of(const struct block_place *place)
{
    return place->segment_address + place->offset;
}

/* As domain_find. Natively the driver does not know bytes behind the request. */
static int find_pinned(CUdeviceptr address, struct block_place *place)
{
    int code = process.pinned ? domain_find(process.pinned, address, place) : ALLOCATOR_UNKNOWN;
    return code == 0 && address - start_of(place) >= place->requested_bytes ? ALLOCATOR_INVALID
                                                                            : code;
}

/* Is the address in a live block of ours, or in imported mapped memory? An address in memory of
 * ours that the program does not hold becomes NOWHERE. */
static enum found find(CUdeviceptr *address, struct block_place *place)
{
    if (!process_serving())
        return NOTHING;
    process_inside++;
    int code = domain_find(process.domain, *address, place);
    enum found found = code == 0                   ? (place->mapped ? MAPPED : ORDINARY)
                       : ipc_find(*address, place) ? MAPPED
                                                   : NOTHING;
    if (code == ALLOCATOR_UNKNOWN && found == NOTHING && (code = find_pinned(*address, place)) == 0)
        found = PINNED;
    process_inside--;
    if (code == ALLOCATOR_INVALID)
        *address = NOWHERE;
    return found;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct block_place place;
    CUresult result = CUDA_SUCCESS;
    enum found found = find(&address, &place);
    if (found != MAPPED)
        result = real()->cuMemGetAddressRange_v2(base, bytes, address);
    if (result != CUDA_SUCCESS || (found != MAPPED && found != PINNED))
        return result;
    if (base)
        *base = start_of(&place);
    if (bytes)
        *bytes = place.requested_bytes;
    return CUDA_SUCCESS;
}

/* A function that is refused for cudaMalloc's memory: it is for memory of cuMemCreate, or for managed
 * memory. With the handle of a chunk a program would share the chunk in place of the block; a
 * multicast object or an endpoint would go on writing to a chunk that has moved elsewhere. The
 * arguments name the address `at`. */
#define REFUSED(name, address, parameters, arguments)                                              \
    CUresult name parameters                                                                       \
    {                                                                                              \
        struct block_place place;                                                                  \
        CUdeviceptr at = (CUdeviceptr)(address);                                                   \
        return find(&at, &place) == MAPPED ? CUDA_ERROR_INVALID_VALUE : real()->name arguments;    \
    }
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct block_place place;
    CUdeviceptr at = (CUdeviceptr)address;
    if (find(&at, &place) == MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = real()->cuMemRetainAllocationHandle(handle, (void *)at);
    return result ? result : uncached_handle_retained(result, *handle);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    struct block_place place;
    CUdeviceptr at = address;
    if (find(&at, &place) == MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    return uncached_handle_unmapped(real()->cuMemUnmap(at, bytes), address, bytes);
}

REFUSED(cuMulticastBindAddr, address,
        (CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr address, size_t bytes,
         unsigned long long flags),
        (object, offset, at, bytes, flags))
REFUSED(cuMulticastBindAddr_v2, address,
        (CUmemGenericAllocationHandle object, CUdevice device, size_t offset, CUdeviceptr address,
         size_t bytes, unsigned long long flags),
        (object, device, offset, at, bytes, flags))
REFUSED(cuLogicalEndpointBindAddr, address,
        (cuuint32_t endpoint, CUdevice device, cuuint64_t offset, void *address, cuuint64_t bytes,
         unsigned long long flags),
        (endpoint, device, offset, (void *)at, bytes, flags))
REFUSED(cuMemGetLocationInfo, address,
        (CUdeviceptr address, size_t bytes, size_t summary, size_t sample, CUmemLocation *found),
        (at, bytes, summary, sample, found))

/* For host memory, and yet the driver answers for mapped memory, too (an H200, driver 580). */
REFUSED(cuMemHostGetDevicePointer_v2, address,
        (CUdeviceptr * device, void *address, unsigned int flags), (device, (void *)at, flags))
REFUSED(cuMemHostGetFlags, address, (unsigned int *flags, void *address), (flags, (void *)at))

/* The driver answers that no access was set (an H200, driver 580). */
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr address)
{
    PASS_GATE;
    struct block_place place;
    enum found found = find(&address, &place);
    CUresult result = real()->cuMemGetAccess(flags, location, address);
    if (found == MAPPED && result == CUDA_SUCCESS)
        *flags = 0;
    return result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                        size_t count)
{
    struct block_place place;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (find(&address, &place) != MAPPED)
        RETRIED(result, real()->cuMemSetAccess(address, bytes, access, count));
    return result;
}

static int context_syncs(void)
{
    unsigned flags = 0;
    real()->cuCtxGetFlags(&flags);
    return (flags & CU_CTX_SYNC_MEMOPS) != 0;
}

/* Memory whose tokens the program has asked for has SYNC_MEMOPS from then on, also mapped memory (an
 * H200, driver 580). */
static void note_tokens(enum found found, CUdeviceptr address)
{
    struct block_place place;
    if (found == NOTHING)
        return;
    process_inside++;
    domain_mark(found == PINNED ? process.pinned : process.domain, address, BLOCK_PINNED, &place);
    process_inside--;
    gate_forbid("network cards may have registered memory");
}

/* Of pinned memory the driver knows whole segments. */
static void correct_pinned(const struct block_place *place, CUpointer_attribute attribute,
                           void *data)
{
    if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
        *(unsigned long long *)data = PINNED_NAMES | place->name;
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
        *(CUdeviceptr *)data = start_of(place);
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        *(size_t *)data = place->requested_bytes;
}

/* Corrects the driver's answer. For ordinary blocks it knows whole allocations, for mapped ones
 * mappings. For NOWHERE the answer gets the address that was asked about. */
static void correct(enum found found, const struct block_place *place,
                    CUpointer_attribute attribute, void *data, CUdeviceptr asked)
{
    if (found == NOTHING &&
        (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
         attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) &&
        *(CUdeviceptr *)data == NOWHERE)
        *(CUdeviceptr *)data = asked;
    if (found == PINNED)
        correct_pinned(place, attribute, data);
    if ((found == ORDINARY || found == PINNED) && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        *(unsigned int *)data = (unsigned)place->sync_memops;
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
        note_tokens(found, asked);
    if (found != MAPPED)
        return;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: /* the driver answers NULL */
        *(CUcontext *)data = (CUcontext)(uintptr_t)place->context;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = OUR_NAMES | place->name;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = start_of(place);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = place->requested_bytes;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: /* small blocks share a mapping natively, too */
        if (place->size_bytes >= MIB)
            *(CUdeviceptr *)data = start_of(place);
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        if (place->size_bytes >= MIB)
            *(size_t *)data = place->size_bytes;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: /* bits of one byte, in an int or a long */
        *(unsigned char *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* by a handle of ours; a boolean */
        *(unsigned char *)data = place->mapped && driver_lends((CUdevice)place->device);
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned int *)data = (unsigned)(place->mapped ? place->sync_memops : context_syncs());
        break;
    default:
        break;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct block_place place;
    CUdeviceptr asked = address;
    PASS_GATE;
    enum found found = find(&address, &place);
    CUresult result = real()->cuPointerGetAttribute(data, attribute, address);
    if (result == CUDA_SUCCESS)
        correct(found, &place, attribute, data, asked);
    return result;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address)
{
    struct block_place place;
    CUdeviceptr asked = address;
    PASS_GATE;
    enum found found = find(&address, &place);
    CUresult result = real()->cuPointerGetAttributes(count, attributes, data, address);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++)
        correct(found, &place, attributes[i], data[i], asked);
    return result;
}

/* The driver refuses it for mapped memory, but the program knows of no mapping: it is set for the
 * whole context. */
static int set_sync_memops(void *device, uint64_t address, int mapped, int on)
{
    unsigned int value = (unsigned)on;
    if (!mapped)
        return (int)real()->cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                                  address);
    return on ? (int)driver_sync_memops(device) : 0;
}

/* Of imported memory nothing is stored: the context's flag says it. CUDA_ERROR_NOT_FOUND: the
 * address is for the driver. */
static CUresult sync_imported(CUdeviceptr pointer, int on)
{
    struct block_place place;
    struct context *context =
        ipc_find(pointer, &place) ? context_noted((CUcontext)(uintptr_t)place.context) : NULL;
    return !context ? CUDA_ERROR_NOT_FOUND : on ? driver_sync_memops(context) : CUDA_SUCCESS;
}

static CUresult sync_memops(CUdeviceptr pointer, int on)
{
    process_inside++;
    int code = domain_sync_memops(process.domain, pointer, on, set_sync_memops);
    if (code == ALLOCATOR_UNKNOWN && process.pinned)
        code = domain_sync_memops(process.pinned, pointer, on, set_sync_memops);
    if (code == ALLOCATOR_UNKNOWN)
        code = (int)sync_imported(pointer, on);
    else if (code == CUDA_ERROR_NOT_FOUND)
        process_warn("SYNC_MEMOPS of mapped memory: this driver cannot have it (12.1 can). Use "
                     "CACHALOT_CONF=expandable_segments:False");
    process_inside--;
    return code == ALLOCATOR_INVALID ? CUDA_ERROR_INVALID_VALUE : (CUresult)code;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr pointer)
{
    PASS_GATE;
    struct block_place place;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !value) {
        if (find(&pointer, &place) == MAPPED)
            pointer = NOWHERE; /* for mappings the driver gives another error than natively */
    } else if (process_serving()) {
        result = sync_memops(pointer, *(const unsigned int *)value != 0);
    }
    return result == CUDA_ERROR_NOT_FOUND ? real()->cuPointerSetAttribute(value, attribute, pointer)
                                          : result;
}
