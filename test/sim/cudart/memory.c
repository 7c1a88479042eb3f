/*
 * Allocation functions of the runtime.
 */
#include "calls.h"

#include <string.h>

static CUresult allocate(const struct runtime_driver *d, void **out, size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = d->cuMemAlloc(&address, bytes);
    if (!result)
        *out = (void *)(uintptr_t)address;
    return result;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (!out)
        return runtime_fail(cudaErrorInvalidValue);
    *out = NULL;
    if (bytes == 0)
        return cudaSuccess;
    const struct runtime_driver *d = runtime_begin(0);
    return runtime_end(d ? allocate(d, out, bytes) : runtime_failed());
}

/* cudaFree(NULL) only makes the context: programs use it for that. */
cudaError_t cudaFree(void *address)
{
    const struct runtime_driver *d = runtime_begin(0);
    if (!d)
        return runtime_end(runtime_failed());
    return address ? runtime_end(d->cuMemFree((CUdeviceptr)address)) : cudaSuccess;
}

static CUresult allocate_pitch(const struct runtime_driver *d, void **out, size_t *pitch,
                               size_t width, size_t height)
{
    if (!out || !pitch)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    *pitch = 0;
    return width && height ? d->cuMemAllocPitch((CUdeviceptr *)out, pitch, width, height, 4)
                           : CUDA_SUCCESS;
}

static CUresult allocate_3d(const struct runtime_driver *d, struct cudaPitchedPtr *out,
                            struct cudaExtent extent)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    out->xsize = extent.width;
    out->ysize = extent.height;
    return allocate_pitch(d, &out->ptr, &out->pitch, extent.width, extent.height * extent.depth);
}

static CUDA_ARRAY3D_DESCRIPTOR array_shape(const struct cudaChannelFormatDesc *format,
                                           struct cudaExtent extent, unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
    int bits[] = {format->x, format->y, format->z, format->w};
    for (int i = 0; i < 4; i++)
        shape.NumChannels += bits[i] != 0;
    shape.Format = format->x == 8    ? CU_AD_FORMAT_UNSIGNED_INT8
                   : format->x == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
                                     : CU_AD_FORMAT_UNSIGNED_INT32;
    return shape;
}

static CUresult allocate_array(const struct runtime_driver *d, cudaArray_t *out,
                               const struct cudaChannelFormatDesc *format, struct cudaExtent extent,
                               unsigned flags)
{
    if (!out || !format)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape = array_shape(format, extent, flags);
    return d->cuArray3DCreate((CUarray *)out, &shape);
}

static CUresult allocate_levels(const struct runtime_driver *d, cudaMipmappedArray_t *out,
                                const struct cudaChannelFormatDesc *format,
                                struct cudaExtent extent, unsigned levels, unsigned flags)
{
    if (!out || !format)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape = array_shape(format, extent, flags);
    return d->cuMipmappedArrayCreate((CUmipmappedArray *)out, &shape, levels);
}

static struct cudaExtent flat(size_t width, size_t height)
{
    return (struct cudaExtent){width, height, 0};
}

CALL(cudaMallocPitch, (void **out, size_t *pitch, size_t width, size_t height),
     allocate_pitch(d, out, pitch, width, height))
CALL(cudaMalloc3D, (struct cudaPitchedPtr * out, struct cudaExtent extent),
     allocate_3d(d, out, extent))
CALL(cudaMalloc3DArray,
     (cudaArray_t * out, const struct cudaChannelFormatDesc *format, struct cudaExtent extent,
      unsigned flags),
     allocate_array(d, out, format, extent, flags))
CALL(cudaMallocArray,
     (cudaArray_t * out, const struct cudaChannelFormatDesc *format, size_t width, size_t height,
      unsigned flags),
     allocate_array(d, out, format, flat(width, height), flags))
CALL(cudaMallocMipmappedArray,
     (cudaMipmappedArray_t * out, const struct cudaChannelFormatDesc *format,
      struct cudaExtent extent, unsigned levels, unsigned flags),
     allocate_levels(d, out, format, extent, levels, flags))
CALL(cudaFreeArray, (cudaArray_t array), array ? d->cuArrayDestroy((CUarray)array) : CUDA_SUCCESS)
CALL(cudaFreeMipmappedArray, (cudaMipmappedArray_t array),
     array ? d->cuMipmappedArrayDestroy((CUmipmappedArray)array) : CUDA_SUCCESS)
CALL(cudaMallocHost, (void **out, size_t bytes), d->cuMemHostAlloc(out, bytes, 0))
CALL(cudaHostAlloc, (void **out, size_t bytes, unsigned flags),
     d->cuMemHostAlloc(out, bytes, flags))
CALL(cudaFreeHost, (void *host), d->cuMemFreeHost(host))
CALL(cudaHostRegister, (void *host, size_t bytes, unsigned flags),
     d->cuMemHostRegister(host, bytes, flags))
CALL(cudaHostUnregister, (void *host), d->cuMemHostUnregister(host))
CALL(cudaHostGetDevicePointer, (void **out, void *host, unsigned flags),
     d->cuMemHostGetDevicePointer((CUdeviceptr *)out, host, flags))
CALL(cudaHostGetFlags, (unsigned *flags, void *host), d->cuMemHostGetFlags(flags, host))
CALL(cudaMallocManaged, (void **out, size_t bytes, unsigned flags),
     d->cuMemAllocManaged((CUdeviceptr *)out, bytes, flags))
CALL(cudaMemGetInfo, (size_t * free_bytes, size_t *total), d->cuMemGetInfo(free_bytes, total))
CALL_TWIN(cudaMallocAsync, _ptsz, (void **out, size_t bytes, cudaStream_t stream),
          d->cuMemAllocAsync((CUdeviceptr *)out, bytes, stream))
CALL_TWIN(cudaFreeAsync, _ptsz, (void *address, cudaStream_t stream),
          address ? d->cuMemFreeAsync((CUdeviceptr)address, stream) : CUDA_SUCCESS)
CALL_TWIN(cudaMallocFromPoolAsync, _ptsz,
          (void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
          d->cuMemAllocFromPoolAsync((CUdeviceptr *)out, bytes, pool, stream))
CALL(cudaMemPoolCreate, (cudaMemPool_t * pool, const struct cudaMemPoolProps *properties),
     d->cuMemPoolCreate(pool, (const CUmemPoolProps *)properties))
CALL(cudaMemPoolDestroy, (cudaMemPool_t pool), d->cuMemPoolDestroy(pool))
CALL(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), d->cuMemPoolTrimTo(pool, keep))
CALL(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
     d->cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value))
CALL(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
     d->cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value))

static CUresult ipc_open(const struct runtime_driver *d, void **out, cudaIpcMemHandle_t handle,
                         unsigned flags)
{
    CUipcMemHandle raw;
    memcpy(&raw, &handle, sizeof(raw));
    return d->cuIpcOpenMemHandle((CUdeviceptr *)out, raw, flags);
}

CALL(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *address),
     d->cuIpcGetMemHandle((CUipcMemHandle *)handle, (CUdeviceptr)address))
CALL(cudaIpcOpenMemHandle, (void **out, cudaIpcMemHandle_t handle, unsigned flags),
     ipc_open(d, out, handle, flags))
CALL(cudaIpcCloseMemHandle, (void *address), d->cuIpcCloseMemHandle((CUdeviceptr)address))

static CUresult attributes_get(const struct runtime_driver *d, struct cudaPointerAttributes *out,
                               const void *address)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof(*out));
    unsigned type = 0, managed = 0;
    CUpointer_attribute asked[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *data[] = {&type, &managed, &out->device, &out->devicePointer, &out->hostPointer};
    CUresult result = d->cuPointerGetAttributes(5, asked, data, (CUdeviceptr)address);
    out->type = managed                        ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered;
    return result;
}

CALL(cudaPointerGetAttributes, (struct cudaPointerAttributes * out, const void *address),
     attributes_get(d, out, address))
