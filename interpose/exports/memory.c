/* Exported: served memory, and uncached allocations, which are passed on and counted. */
#include "interpose/context/capture.h"
#include "interpose/memory/fill.h"
#include "interpose/memory/ipc.h"
#include "interpose/memory/memory.h"
#include "interpose/memory/pinned.h"
#include "interpose/memory/refuse.h"
#include "interpose/memory/uncached.h"
#include "interpose/process/gate.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/exports/submit_wrapper.h"

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    return memory_alloc(pointer, bytes);
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    return memory_free(pointer);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    return memory_alloc_pitch(pointer, pitch, width, height, element);
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    return memory_info(available, total);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    return real()->cuDeviceTotalMem_v2(bytes, device);
}

/* In a capture nothing is allocated: the call makes a node, whose launches allocate. */
static CUresult made_async(CUresult result, const CUdeviceptr *pointer, size_t bytes,
                           CUstream stream, int per_thread)
{
    if (capture_active() && capture_is_on(stream, per_thread))
        return uncached_in_graph(result, *pointer, bytes);
    if (process.watched)
        fill_in_stream(*pointer, bytes, stream, per_thread);
    return uncached_made(result, UNCACHED_pool, SPACE_address, *pointer, bytes);
}

/* A function that allocates in a stream. */
#define ALLOC_ASYNC(name, per_thread, parameters, arguments)                                       \
    CUresult name parameters                                                                       \
    {                                                                                              \
        CUresult result;                                                                           \
        if (pointer && refuses(UNCACHED_pool, bytes))                                              \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        submit_begin(SUBMISSION_pool_operations, stream, per_thread);                              \
        RETRIED_FOR(result, bytes, 0, real()->name arguments);                                     \
        submit_end(result, stream, per_thread, 0);                                                 \
        return result ? uncached_failed(result, UNCACHED_pool, bytes)                              \
                      : made_async(result, pointer, bytes, stream, per_thread);                    \
    }
#define FROM_POOL (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream)

ALLOC_ASYNC(cuMemAllocAsync, 0, (CUdeviceptr * pointer, size_t bytes, CUstream stream),
            (pointer, bytes, stream))
ALLOC_ASYNC(cuMemAllocAsync_ptsz, 1, (CUdeviceptr * pointer, size_t bytes, CUstream stream),
            (pointer, bytes, stream))
ALLOC_ASYNC(cuMemAllocFromPoolAsync, 0, FROM_POOL, (pointer, bytes, pool, stream))
ALLOC_ASYNC(cuMemAllocFromPoolAsync_ptsz, 1, FROM_POOL, (pointer, bytes, pool, stream))

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    return memory_free_async(pointer, stream, 0);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return memory_free_async(pointer, stream, 1);
}

/* A function that makes an uncached allocation: `bytes` of `kind`, on the books under `key` of
 * `space`. Both are expressions of its parameters: the key is evaluated after success, the bytes
 * also before. */
#define UNCACHED(kind, space, name, key, bytes, parameters, arguments)                             \
    CUresult name parameters                                                                       \
    {                                                                                              \
        CUresult result;                                                                           \
        if (&(key) && refuses(UNCACHED_##kind, bytes))                                             \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        RETRIED_FOR(result, uncached_least(UNCACHED_##kind, bytes), 0, real()->name arguments);    \
        return result ? uncached_failed(result, UNCACHED_##kind, bytes)                            \
                      : uncached_made(result, UNCACHED_##kind, SPACE_##space,                      \
                                      (uint64_t)(uintptr_t)(key), bytes);                          \
    }

/* The function that frees it. */
#define UNCACHED_END(space, name, type)                                                            \
    CUresult name(type key)                                                                        \
    {                                                                                              \
        struct uncached_free freed;                                                                \
        uncached_free_begin(&freed, SPACE_##space, (uint64_t)(uintptr_t)key);                      \
        return uncached_free_end(&freed, #name, real()->name(key));                                \
    }

UNCACHED(managed, address, cuMemAllocManaged, *pointer, bytes,
         (CUdeviceptr * pointer, size_t bytes, unsigned int flags), (pointer, bytes, flags))

/* On the books after the pool or the driver (`result`) has answered. */
static CUresult host_made(CUresult result, void *const *pointer, size_t bytes)
{
    if (process.watched && !result)
        fill_host(*pointer, bytes);
    return result ? uncached_failed(result, UNCACHED_host, bytes)
                  : uncached_made(result, UNCACHED_host, SPACE_address,
                                  (uint64_t)(uintptr_t)*pointer, bytes);
}

/* A function that allocates pinned memory: from the pool, else from the driver. */
#define ALLOC_HOST(name, flags, parameters, arguments)                                             \
    CUresult name parameters                                                                       \
    {                                                                                              \
        CUresult result = CUDA_SUCCESS;                                                            \
        if (pointer && refuses(UNCACHED_host, bytes))                                              \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        if (!pinned_alloc(pointer, bytes, flags))                                                  \
            RETRIED_FOR(result, bytes, 1, real()->name arguments);                                 \
        return host_made(result, pointer, bytes);                                                  \
    }
ALLOC_HOST(cuMemAllocHost_v2, 0, (void **pointer, size_t bytes), (pointer, bytes))
ALLOC_HOST(cuMemHostAlloc, flags, (void **pointer, size_t bytes, unsigned int flags),
           (pointer, bytes, flags))

/* A free can return an error of earlier work: the memory is gone all the same. */
CUresult cuMemFreeHost(void *pointer)
{
    struct uncached_free freed;
    CUresult result;
    int gone;
    uncached_free_begin(&freed, SPACE_address, (uint64_t)(uintptr_t)pointer);
    if (!pinned_free(pointer, &result, &gone))
        return uncached_free_end(&freed, "cuMemFreeHost", real()->cuMemFreeHost(pointer));
    uncached_free_end(&freed, "cuMemFreeHost", gone ? CUDA_SUCCESS : result);
    return result;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    CUresult result;
    if (pointer && refuses(UNCACHED_host, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    RETRIED_FOR(result, bytes, 1, real()->cuMemHostRegister_v2(pointer, bytes, flags));
    return result ? uncached_failed(result, UNCACHED_host, bytes)
                  : uncached_made(result, UNCACHED_host, SPACE_registered,
                                  (uint64_t)(uintptr_t)pointer, bytes);
}
UNCACHED_END(registered, cuMemHostUnregister, void *)

static uint64_t array_2d(const CUDA_ARRAY_DESCRIPTOR *shape)
{
    if (!shape)
        return 0;
    const CUDA_ARRAY3D_DESCRIPTOR full = uncached_array_of(shape);
    return uncached_array_bytes(&full, 1);
}

UNCACHED(array, array, cuArrayCreate_v2, *array, array_2d(shape),
         (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *shape), (array, shape))
UNCACHED(array, array, cuArray3DCreate_v2, *array, uncached_array_bytes(shape, 1),
         (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape), (array, shape))
UNCACHED(array, mipmapped, cuMipmappedArrayCreate, *array, uncached_array_bytes(shape, levels),
         (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels),
         (array, shape, levels))
UNCACHED_END(array, cuArrayDestroy, CUarray)
UNCACHED_END(mipmapped, cuMipmappedArrayDestroy, CUmipmappedArray)

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result;
    int host = properties && properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    if (handle && refuses(UNCACHED_vmm, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    RETRIED_FOR(result, bytes, host, real()->cuMemCreate(handle, bytes, properties, flags));
    return result ? uncached_failed(result, UNCACHED_vmm, bytes)
                  : uncached_handle_made(result, *handle, bytes, properties);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    CUresult result;
    RETRIED(result, real()->cuMemImportFromShareableHandle(handle, os_handle, type));
    return result ? result : uncached_handle_made(result, *handle, 0, NULL);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result;
    RETRIED(result, real()->cuMemMap(pointer, size, offset, handle, flags));
    return uncached_handle_mapped(result, pointer, size, handle);
}
UNCACHED_END(handle, cuMemRelease, CUmemGenericAllocationHandle)

UNCACHED(imported, address, cuMemPoolImportPointer, *pointer, 0,
         (CUdeviceptr * pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data),
         (pointer, pool, data))
UNCACHED(imported, external, cuImportExternalMemory, *memory, handle ? handle->size : 0,
         (CUexternalMemory * memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *handle),
         (memory, handle))
UNCACHED_END(external, cuDestroyExternalMemory, CUexternalMemory)

/* A function that opens a handle, ours or the driver's. */
#define OPENS(name)                                                                                \
    CUresult name(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)                 \
    {                                                                                              \
        CUresult result;                                                                           \
        int ours = ipc_is_ours(&handle);                                                           \
        RETRIED(result, ours ? ipc_open(pointer, &handle) : real()->name(pointer, handle, flags)); \
        return uncached_made(result, UNCACHED_imported, SPACE_address, result ? 0 : *pointer, 0);  \
    }
OPENS(cuIpcOpenMemHandle)
OPENS(cuIpcOpenMemHandle_v2)

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    CUresult result;
    struct uncached_free freed;
    uncached_free_begin(&freed, SPACE_address, pointer);
    if (!ipc_close(pointer, &result))
        result = real()->cuIpcCloseMemHandle(pointer);
    return uncached_free_end(&freed, "cuIpcCloseMemHandle", result);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    PASS_GATE;
    return ipc_export(handle, pointer);
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t size,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    PASS_GATE;
    ipc_share(pointer); /* such a handle names its range, so an offset is harmless */
    return real()->cuMemGetHandleForAddressRange(handle, pointer, size, type, flags);
}
