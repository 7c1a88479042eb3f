/*
 * Allocation functions of the driver: device, pitched, managed, pinned, arrays.
 */
#include "call.h"
#include "capture.h"
#include "config.h"
#include "context.h"
#include "copy.h"
#include "memory.h"

#include <stdlib.h>

static CUresult allocate(CUdeviceptr *out, size_t bytes, enum sim_memory_kind kind, unsigned flags)
{
    CUresult result;
    struct sim_context *context = context_current(&result);
    if (!context)
        return result;
    result = capture_unsafe();
    if (result)
        return result;
    struct sim_memory *memory = memory_new(context, context->device, kind, bytes);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->flags = flags;
    *out = memory->start;
    return CUDA_SUCCESS;
}

static CUresult allocate_or_clear(CUdeviceptr *out, size_t bytes)
{
    CUresult result = allocate(out, bytes, MEMORY_DEVICE, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        *out = 0; /* as seen on an H200, through cudart 11.8 and 12.9 */
    return result;
}

CUresult do_cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    return out && bytes ? allocate_or_clear(out, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                               unsigned element)
{
    if (!out || !pitch || width == 0 || height == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (element != 4 && element != 8 && element != 16)
        return CUDA_ERROR_INVALID_VALUE;
    size_t rounded = (width + 511) & ~(size_t)511, bytes;
    if (rounded < width || __builtin_mul_overflow(rounded, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate_or_clear(out, bytes);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
        *pitch = rounded; /* as seen on an H200 */
    return result;
}

CUresult do_cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags)
{
    if (!out || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(out, bytes, MEMORY_MANAGED, flags);
}

/* Natively this waits for all work of the owning context, non-blocking streams too. */
CUresult do_cuMemFree_v2(CUdeviceptr address)
{
    if (!address)
        return CUDA_SUCCESS;
    struct sim_memory *memory = memory_find_base(address);
    if (!memory || memory->dying || memory->kind > MEMORY_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = capture_unsafe();
    if (result)
        return result;
    unsigned long long id = memory->id;
    context_wait(memory->context);
    /* The wait lets other threads in: is it still the same memory? */
    memory = memory_find_base(address);
    if (!memory || memory->id != id)
        return CUDA_ERROR_INVALID_VALUE;
    memory_release(memory);
    return CUDA_SUCCESS;
}

CUresult do_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CUresult why;
    const struct sim_context *context = context_current(&why);
    if (!context)
        return why;
    if (!free_bytes || !total)
        return CUDA_ERROR_INVALID_VALUE;
    *total = config()->capacity;
    *free_bytes = *total - memory_used(context->device);
    return CUDA_SUCCESS;
}

CUresult do_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    const struct sim_memory *memory = memory_find(address, 1);
    if (!memory || memory->dying)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = memory->start;
    if (bytes)
        *bytes = memory->bytes;
    return CUDA_SUCCESS;
}

#define PINNED_MOST ((size_t)1 << 40) /* of one allocation */

/* "Mapped" is always told, and "portable" never, as an H200 with driver 580 does. */
static unsigned told_flags(unsigned flags)
{
    return CU_MEMHOSTALLOC_DEVICEMAP | (flags & CU_MEMHOSTALLOC_WRITECOMBINED);
}

CUresult do_cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    CUresult result;
    struct sim_context *context = context_current(&result);
    if (!context)
        return result;
    if (!out || flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                                    CU_MEMHOSTALLOC_WRITECOMBINED))
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_unsafe();
    if (result)
        return result;
    *out = NULL;
    if (bytes == 0)
        return CUDA_SUCCESS;
    void *host = NULL;
    if (bytes > PINNED_MOST || memory_pinned() + bytes > config()->pinned ||
        posix_memalign(&host, 4096, (bytes + 4095) & ~(size_t)4095))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_memory *memory = memory_note(context, MEMORY_HOST, (uintptr_t)host, bytes);
    memory->flags = told_flags(flags);
    *out = host;
    return CUDA_SUCCESS;
}

CUresult do_cuMemAllocHost_v2(void **out, size_t bytes)
{
    return do_cuMemHostAlloc(out, bytes, 0);
}

static CUresult host_release(void *host, enum sim_memory_kind kind, CUresult unknown)
{
    struct sim_memory *memory = memory_find_base((uintptr_t)host);
    if (!memory || memory->kind != kind)
        return unknown;
    CUresult result = capture_unsafe();
    if (result)
        return result;
    unsigned long long id = memory->id;
    context_wait(memory->context);
    memory = memory_find_base((uintptr_t)host);
    if (!memory || memory->id != id)
        return unknown;
    memory_release(memory);
    return CUDA_SUCCESS;
}

CUresult do_cuMemFreeHost(void *host)
{
    return host ? host_release(host, MEMORY_HOST, CUDA_ERROR_INVALID_VALUE) : CUDA_SUCCESS;
}

CUresult do_cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
    CUresult why;
    struct sim_context *context = context_current(&why);
    if (!context)
        return why;
    if (!host || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    why = capture_unsafe();
    if (why)
        return why;
    struct sim_memory *memory = memory_note(context, MEMORY_REGISTERED, (uintptr_t)host, bytes);
    if (!memory)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    memory->flags = told_flags(0) | flags;
    return CUDA_SUCCESS;
}

CUresult do_cuMemHostUnregister(void *host)
{
    return host_release(host, MEMORY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static const struct sim_memory *host_memory(const void *host)
{
    const struct sim_memory *memory = memory_find((uintptr_t)host, 1);
    if (!memory || (memory->kind != MEMORY_HOST && memory->kind != MEMORY_REGISTERED))
        return NULL;
    return memory;
}

/* Both answer for mapped memory as well, as an H200 with driver 580 does. */
static const struct sim_memory *host_or_mapped(void *address)
{
    const struct sim_memory *memory = memory_find((uintptr_t)address, 1);
    return memory && memory->kind == MEMORY_MAPPED ? memory : host_memory(address);
}

CUresult do_cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *host, unsigned flags)
{
    if (!out || flags || !host_or_mapped(host))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)host;
    return CUDA_SUCCESS;
}

CUresult do_cuMemHostGetFlags(unsigned *flags, void *host)
{
    const struct sim_memory *memory = host_or_mapped(host);
    if (!flags || !memory)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = memory->flags;
    return CUDA_SUCCESS;
}

static size_t format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default:
        return 4;
    }
}

CUresult do_cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    if (!out || !shape || shape->Width == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_array *array = calloc(1, sizeof(*array));
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->pitch = shape->Width * format_bytes(shape->Format) * shape->NumChannels;
    array->slice = array->pitch * (shape->Height ? shape->Height : 1);
    CUdeviceptr start = 0;
    CUresult result = allocate(&start, array->slice * (shape->Depth ? shape->Depth : 1),
                               MEMORY_ARRAY, shape->Flags);
    if (result) {
        free(array);
        return result;
    }
    array->memory = memory_find_base(start);
    *out = (CUarray)array;
    return CUDA_SUCCESS;
}

CUresult do_cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *shape)
{
    if (!shape)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR full = {.Width = shape->Width,
                                    .Height = shape->Height,
                                    .Format = shape->Format,
                                    .NumChannels = shape->NumChannels};
    return do_cuArray3DCreate_v2(out, &full);
}

/* Enough room for all levels of any shape. */
CUresult do_cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                   unsigned levels)
{
    if (!shape || levels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR twice = *shape;
    twice.Depth = 2 * (shape->Depth ? shape->Depth : 1);
    return do_cuArray3DCreate_v2((CUarray *)out, &twice);
}

CUresult do_cuArrayDestroy(CUarray handle)
{
    struct sim_array *array = (struct sim_array *)handle;
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = capture_unsafe();
    if (result)
        return result;
    context_wait(array->memory->context);
    memory_release(array->memory);
    free(array);
    return CUDA_SUCCESS;
}

CUresult do_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    return do_cuArrayDestroy((CUarray)array);
}
