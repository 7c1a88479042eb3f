/*
 * Virtual memory management: handles are charged when created, addresses are mapped to them. A
 * handle is shared memory, so that what is mapped twice shares its bytes; and work on either
 * address is checked as work on that (physical_of).
 */
#include "call.h"
#include "capture.h"
#include "config.h"
#include "context.h"
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int physical_of(struct sim_range *range)
{
    const struct sim_memory *memory = memory_find(range->start, 1);
    if (!memory || memory->kind != MEMORY_MAPPED)
        return 0;
    uintptr_t at = range->start - memory->start;
    if (range->bytes > memory->bytes - at)
        range->bytes = memory->bytes - at;
    range->start = (uintptr_t)memory->handle->bytes_at + at;
    return 1;
}

static int aligned(size_t value)
{
    return value != 0 && value % SIM_GRANULE == 0;
}

static void handle_drop(struct sim_handle *handle)
{
    if (--handle->references)
        return;
    if (!handle->imported)
        memory_discharge(handle->device, handle->bytes);
    if (handle->fd >= 0)
        close(handle->fd);
    munmap(handle->bytes_at, handle->bytes);
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
    if (properties->requestedHandleTypes && !config()->exports)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_handle *handle = calloc(1, sizeof(*handle));
    if (!handle || !memory_charge(properties->location.id, bytes)) {
        free(handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->device = properties->location.id;
    handle->references = 1;
    handle->types = (int)properties->requestedHandleTypes;
    handle->fd = -1;
    handle->bytes = bytes;
    handle->bytes_at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (handle->bytes_at == MAP_FAILED)
        abort();
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

CUresult do_cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
                                unsigned long long flags)
{
    (void)hint;
    if (!out || flags || !aligned(bytes) || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    uintptr_t start = memory_reserve_range(bytes, alignment);
    if (!start)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = start;
    return CUDA_SUCCESS;
}

CUresult do_cuMemAddressFree(CUdeviceptr start, size_t bytes)
{
    if (!aligned(bytes) || memory_find(start, bytes) || !memory_unreserve_range(start, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult do_cuMemMap(CUdeviceptr start, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct sim_handle *physical = (struct sim_handle *)(uintptr_t)handle;
    if (!physical || offset || flags || !aligned(bytes) || start % SIM_GRANULE ||
        bytes > physical->bytes || !memory_is_device_address(start))
        return CUDA_ERROR_INVALID_VALUE;
    if (memory_find(start, bytes) || !memory_is_reserved(start, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (mremap(physical->bytes_at, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               (void *)(uintptr_t)start) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_memory *memory = memory_note(NULL, MEMORY_MAPPED, start, bytes);
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
        void *place = (void *)memory->start;
        size_t length = memory->bytes;
        memory_release(memory);
        if (mmap(place, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                 -1, 0) == MAP_FAILED)
            abort();
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
        for (size_t i = 0; i < count; i++) {
            if (access[i].location.id != memory->handle->device && !config()->peers)
                return CUDA_ERROR_INVALID_DEVICE;
            unsigned long long device = 1ull << access[i].location.id;
            int may = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            memory->accessible = may ? memory->accessible | device : memory->accessible & ~device;
        }
        at = memory->start + memory->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult do_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                           CUdeviceptr address)
{
    const struct sim_memory *memory = memory_find(address, 1);
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    if (memory->kind == MEMORY_MAPPED)
        *flags = memory->accessible >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
    return CUDA_SUCCESS;
}

/* Nothing is bound: there is no multicast object. What is told apart is the memory that may be. */
CUresult do_cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset,
                                CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    const struct sim_memory *memory = memory_find(address, bytes);
    (void)object;
    (void)offset;
    return !flags && memory && memory->kind == MEMORY_MAPPED ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device,
                                   size_t offset, CUdeviceptr address, size_t bytes,
                                   unsigned long long flags)
{
    (void)device;
    return do_cuMulticastBindAddr(object, offset, address, bytes, flags);
}

CUresult do_cuLogicalEndpointBindAddr(cuuint32_t endpoint, CUdevice device, cuuint64_t offset,
                                      void *address, cuuint64_t bytes, unsigned long long flags)
{
    (void)endpoint;
    (void)device;
    return do_cuMulticastBindAddr(0, offset, (CUdeviceptr)address, bytes, flags);
}

/* As cuda.h of 13.5 has it: for managed memory only. What a driver says of mapped memory is not
 * known; here it would tell where that lies. */
CUresult do_cuMemGetLocationInfo(CUdeviceptr address, size_t bytes, size_t summary, size_t sample,
                                 CUmemLocation *out)
{
    const struct sim_memory *memory = memory_find(address, bytes);
    if (!out || !summary || summary > bytes || sample > summary || !memory ||
        (memory->kind != MEMORY_MANAGED && memory->kind != MEMORY_MAPPED))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < (bytes + summary - 1) / summary; i++)
        out[i] = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->device};
    return CUDA_SUCCESS;
}
