/* Exported: memory that is served, and memory that is passed on and counted. */
#include "interpose/context/capture.h"
#include "interpose/memory/memory.h"
#include "interpose/memory/uncached.h"
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

/* In a capture nothing is allocated yet: a node is made, whose launches allocate. */
static CUresult made_async(CUresult result, const CUdeviceptr *pointer, size_t bytes,
                           CUstream stream, int per_thread)
{
    CUdeviceptr address = result ? 0 : *pointer;
    return !result && capture_active() && capture_is_on(stream, per_thread)
               ? others_in_graph(result, address, bytes)
               : others_made(result, OTHER_pool, address, bytes);
}

/* A function that allocates in a stream. */
#define ALLOC_ASYNC(name, per_thread, parameters, arguments)                                       \
    CUresult name parameters                                                                       \
    {                                                                                              \
        CUresult result;                                                                           \
        int tries = 0;                                                                             \
        submit_begin(SUBMISSION_pool_operations, stream, per_thread);                              \
        RETRIED(result, real()->name arguments);                                                   \
        submit_end(result, stream, per_thread, 0);                                                 \
        return made_async(result, pointer, bytes, stream, per_thread);                             \
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

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuMemAllocManaged(pointer, bytes, flags));
    return others_made(result, OTHER_managed, result ? 0 : *pointer, bytes);
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuMemAllocHost_v2(pointer, bytes));
    return others_made(result, OTHER_host, result ? 0 : (uintptr_t)*pointer, bytes);
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuMemHostAlloc(pointer, bytes, flags));
    return others_made(result, OTHER_host, result ? 0 : (uintptr_t)*pointer, bytes);
}

CUresult cuMemFreeHost(void *pointer)
{
    return others_ended(real()->cuMemFreeHost(pointer), (uintptr_t)pointer, NULL);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuMemHostRegister_v2(pointer, bytes, flags));
    return result;
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuArrayCreate_v2(array, shape));
    if (result != CUDA_SUCCESS)
        return result;
    const CUDA_ARRAY3D_DESCRIPTOR full = {.Width = shape->Width,
                                          .Height = shape->Height,
                                          .Format = shape->Format,
                                          .NumChannels = shape->NumChannels};
    return others_made(result, OTHER_array, (uintptr_t)*array, others_array(&full, 1));
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuArray3DCreate_v2(array, shape));
    return result ? result
                  : others_made(result, OTHER_array, (uintptr_t)*array, others_array(shape, 1));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                unsigned int levels)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuMipmappedArrayCreate(array, shape, levels));
    return result
               ? result
               : others_made(result, OTHER_array, (uintptr_t)*array, others_array(shape, levels));
}

CUresult cuArrayDestroy(CUarray array)
{
    return others_ended(real()->cuArrayDestroy(array), (uintptr_t)array, NULL);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    return others_ended(real()->cuMipmappedArrayDestroy(array), (uintptr_t)array, NULL);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuMemCreate(handle, bytes, properties, flags));
    return others_made(result, OTHER_vmm, result ? 0 : *handle, bytes);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    return others_ended(real()->cuMemRelease(handle), handle, NULL);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuMemImportFromShareableHandle(handle, os_handle, type));
    return others_made(result, OTHER_imported, result ? 0 : *handle, 0);
}

/* A handle of ours, or the driver's. */
#define OPENS(name)                                                                                \
    CUresult name(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)                 \
    {                                                                                              \
        CUresult result;                                                                           \
        int tries = 0, ours = ipc_is_ours(&handle);                                                \
        RETRIED(result, ours ? ipc_open(pointer, &handle) : real()->name(pointer, handle, flags)); \
        return others_made(result, OTHER_imported, result ? 0 : *pointer, 0);                      \
    }
OPENS(cuIpcOpenMemHandle)
OPENS(cuIpcOpenMemHandle_v2)

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    CUresult result;
    if (!ipc_close(pointer, &result))
        result = real()->cuIpcCloseMemHandle(pointer);
    return others_ended(result, pointer, NULL);
}

CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *handle)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuImportExternalMemory(memory, handle));
    return result ? result : others_made(result, OTHER_imported, (uintptr_t)*memory, handle->size);
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    return others_ended(real()->cuDestroyExternalMemory(memory), (uintptr_t)memory, NULL);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool,
                                CUmemPoolPtrExportData *data)
{
    CUresult result;
    int tries = 0;
    RETRIED(result, real()->cuMemPoolImportPointer(pointer, pool, data));
    return others_made(result, OTHER_imported, result ? 0 : *pointer, 0);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    return memory_export(handle, pointer);
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t size,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    memory_share(pointer); /* names its range itself, so an offset is no danger */
    return real()->cuMemGetHandleForAddressRange(handle, pointer, size, type, flags);
}
