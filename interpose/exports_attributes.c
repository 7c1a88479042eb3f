/* Exported: what the program asks and sets of an address. Of mapped memory the driver knows
 * mappings, of which a block has several, or a part of one; natively an allocation is what it asks
 * about. A program sends its offset in the range along with an IPC handle, so both speak of the
 * same thing: the block, where the memory is mapped; the segment, in the driver's own handle and
 * answers, where it is not. */
#include "allocator/share.h"
#include "interpose/context.h"
#include "interpose/driver.h"
#include "interpose/memory.h"
#include "interpose/process.h"
#include "interpose/real.h"

/* Numbers of ours are none of the driver's, which count from 1. */
#define OUR_NAMES ((unsigned long long)1 << 62)

/* What the driver says of it is what it says of freed memory. */
#define NOWHERE ((CUdeviceptr)1)

/* Is it in mapped memory that the program holds? What is in memory of ours that it does not hold
 * becomes an address that nobody has. */
static int find(CUdeviceptr *address, struct block_place *place)
{
    if (!process_serving())
        return 0;
    process_inside++;
    int code = domain_find(process->domain, *address, place);
    int found = code == 0 ? place->mapped : ipc_find(*address, place);
    process_inside--;
    if (code == ALLOCATOR_INVALID)
        *address = NOWHERE;
    return found;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct block_place place;
    if (!find(&address, &place))
        return real()->cuMemGetAddressRange_v2(base, bytes, address);
    if (base)
        *base = place.segment_address + place.offset;
    if (bytes)
        *bytes = place.requested_bytes;
    return CUDA_SUCCESS;
}

/* Natively only memory of cuMemCreate has a handle. Who had one of a chunk would send it for the
 * block. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct block_place place;
    CUdeviceptr at = (CUdeviceptr)address;
    return find(&at, &place) ? CUDA_ERROR_INVALID_VALUE
                             : real()->cuMemRetainAllocationHandle(handle, (void *)at);
}

/* Puts right what the driver has answered, where it is about mappings. */
static void correct(const struct block_place *place, CUpointer_attribute attribute, void *data)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: /* the driver: none */
        *(CUcontext *)data = (CUcontext)(uintptr_t)place->context;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = OUR_NAMES | place->name;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = place->segment_address + place->offset;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = place->requested_bytes;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: /* bits of one byte, in an int or a long */
        *(unsigned char *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* a boolean, however wide: by us */
        *(unsigned char *)data = place->mapped && driver_lends((CUdevice)place->device);
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned int *)data = (unsigned)place->sync_memops;
        break;
    default:
        break;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct block_place place;
    int found = find(&address, &place);
    CUresult result = real()->cuPointerGetAttribute(data, attribute, address);
    if (result == CUDA_SUCCESS && found)
        correct(&place, attribute, data);
    return result;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address)
{
    struct block_place place;
    int found = find(&address, &place);
    CUresult result = real()->cuPointerGetAttributes(count, attributes, data, address);
    for (unsigned i = 0; result == CUDA_SUCCESS && found && i < count; i++)
        correct(&place, attributes[i], data[i]);
    return result;
}

/* The driver refuses it for mapped memory, of which the program knows nothing: there it is set for
 * the whole context, and known of the block. CUDA_ERROR_NOT_FOUND: this driver cannot. */
static CUresult set_sync_memops(const struct block_place *place, int on)
{
    struct context *context = context_with((CUcontext)(uintptr_t)place->context);
    process_inside++;
    CUresult result = !context ? CUDA_ERROR_NOT_FOUND
                      : on     ? driver_sync_memops(context)
                               : CUDA_SUCCESS;
    process_inside--;
    if (context && result == CUDA_ERROR_NOT_FOUND)
        process_warn("SYNC_MEMOPS of mapped memory: this driver cannot have it (12.1 can). Use "
                     "CACHALOT_CONF=expandable_segments:False");
    return result;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr pointer)
{
    struct block_place place;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    int found = find(&pointer, &place);
    int syncs = attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && value;
    int on = syncs && *(const unsigned int *)value;
    if (found && syncs)
        result = set_sync_memops(&place, on);
    else if (found)
        pointer = NOWHERE; /* natively as wrong for all memory, for mappings another error */
    if (result == CUDA_ERROR_NOT_FOUND)
        result = real()->cuPointerSetAttribute(value, attribute, pointer);
    if (result == CUDA_SUCCESS && syncs)
        memory_pin(pointer, on);
    return result;
}
