/*
 * Virtual memory management: handles are charged when created, addresses are mapped to them. One
 * handle mapped twice does not share its bytes here.
 */
#include "call.h"
#include "capture.h"
#include "config.h"
#include "context.h"
#include "memory.h"

#include <stdlib.h>

struct sim_handle {
    int device, references;
    size_t bytes;
};

static int aligned(size_t value)
{
    return value != 0 && value % SIM_GRANULE == 0;
}

static void handle_drop(struct sim_handle *handle)
{
    if (--handle->references)
        return;
    memory_discharge(handle->device, handle->bytes);
    free(handle);
}

CUresult do_cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *properties,
                                          CUmemAllocationGranularity_flags option)
{
    (void)option;
    if (!out || !properties)
        return CUDA_ERROR_INVALID_VALUE;
    *out = SIM_GRANULE;
    return CUDA_SUCCESS;
}

CUresult do_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                        const CUmemAllocationProp *properties, unsigned long long flags)
{
    if (!out || !properties || flags || !aligned(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!device_is_valid(properties->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_handle *handle = calloc(1, sizeof(*handle));
    if (!handle || !memory_charge(properties->location.id, bytes)) {
        free(handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->device = properties->location.id;
    handle->references = 1;
    handle->bytes = bytes;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult do_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    handle_drop((struct sim_handle *)(uintptr_t)handle);
    return CUDA_SUCCESS;
}

CUresult do_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    const struct sim_memory *memory = memory_find((uintptr_t)address, 1);
    if (!out || !memory || !memory->handle)
        return CUDA_ERROR_INVALID_VALUE;
    memory->handle->references++;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)memory->handle;
    return CUDA_SUCCESS;
}

CUresult do_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                         CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)out, (void)handle, (void)type, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Reserved addresses are only kept from others by never going back: see memory_reserve. */
CUresult do_cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
                                unsigned long long flags)
{
    (void)hint;
    if (!out || flags || !aligned(bytes) || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult why;
    const struct sim_context *context = context_current(&why);
    uintptr_t start = memory_reserve(context ? context->device : 0, bytes, alignment);
    if (!start)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = start;
    return CUDA_SUCCESS;
}

CUresult do_cuMemAddressFree(CUdeviceptr start, size_t bytes)
{
    if (!aligned(bytes) || start % SIM_GRANULE || memory_find(start, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    memory_unreserve(start, bytes);
    return CUDA_SUCCESS;
}

CUresult do_cuMemMap(CUdeviceptr start, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct sim_handle *physical = (struct sim_handle *)(uintptr_t)handle;
    if (!physical || offset || flags || !aligned(bytes) || start % SIM_GRANULE ||
        bytes > physical->bytes || !memory_is_device_address(start))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_memory *memory = memory_note(NULL, MEMORY_MAPPED, start, bytes);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    memory->device = physical->device;
    memory->handle = physical;
    physical->references++;
    return CUDA_SUCCESS;
}

CUresult do_cuMemUnmap(CUdeviceptr start, size_t bytes)
{
    if (!aligned(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = capture_unsafe();
    engine_run();
    for (uintptr_t at = start; at < start + bytes && !result;) {
        struct sim_memory *memory = memory_find_base(at);
        if (!memory || memory->kind != MEMORY_MAPPED || at + memory->bytes > start + bytes)
            return CUDA_ERROR_INVALID_VALUE;
        at += memory->bytes;
        struct sim_handle *handle = memory->handle;
        memory_release(memory);
        handle_drop(handle);
    }
    return result;
}

CUresult do_cuMemSetAccess(CUdeviceptr start, size_t bytes, const CUmemAccessDesc *access,
                           size_t count)
{
    if (!aligned(bytes) || !access || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (uintptr_t at = start; at < start + bytes;) {
        struct sim_memory *memory = memory_find(at, 1);
        if (!memory || memory->kind != MEMORY_MAPPED)
            return CUDA_ERROR_INVALID_VALUE;
        memory->accessible = access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        at = memory->start + memory->bytes;
    }
    return CUDA_SUCCESS;
}
