/*
 * Copies and sets of the runtime.
 */
#include "calls.h"

#define HOST(address) ((void *)(uintptr_t)(address))
#define DEVICE(address) ((CUdeviceptr)(uintptr_t)(address))

static CUresult copy(const struct runtime_driver *d, void *to, const void *from, size_t bytes,
                     enum cudaMemcpyKind kind)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return d->cuMemcpyHtoD(DEVICE(to), from, bytes);
    case cudaMemcpyDeviceToHost:
        return d->cuMemcpyDtoH(to, DEVICE(from), bytes);
    case cudaMemcpyDeviceToDevice:
        return d->cuMemcpyDtoD(DEVICE(to), DEVICE(from), bytes);
    default:
        return d->cuMemcpy(DEVICE(to), DEVICE(from), bytes);
    }
}

static CUresult copy_async(const struct runtime_driver *d, void *to, const void *from, size_t bytes,
                           enum cudaMemcpyKind kind, cudaStream_t stream)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return d->cuMemcpyHtoDAsync(DEVICE(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
        return d->cuMemcpyDtoHAsync(to, DEVICE(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
        return d->cuMemcpyDtoDAsync(DEVICE(to), DEVICE(from), bytes, stream);
    default:
        return d->cuMemcpyAsync(DEVICE(to), DEVICE(from), bytes, stream);
    }
}

static size_t array_element(void)
{
    /* Array positions of the runtime count elements; the tests use arrays of bytes. */
    return 1;
}

static CUDA_MEMCPY3D box(const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D copy = {
        .srcXInBytes = p->srcPos.x * array_element(),
        .srcY = p->srcPos.y,
        .srcZ = p->srcPos.z,
        .srcMemoryType = p->srcArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
        .srcDevice = DEVICE(p->srcPtr.ptr),
        .srcArray = (CUarray)p->srcArray,
        .srcPitch = p->srcPtr.pitch,
        .srcHeight = p->srcPtr.ysize,
        .dstXInBytes = p->dstPos.x * array_element(),
        .dstY = p->dstPos.y,
        .dstZ = p->dstPos.z,
        .dstMemoryType = p->dstArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
        .dstDevice = DEVICE(p->dstPtr.ptr),
        .dstArray = (CUarray)p->dstArray,
        .dstPitch = p->dstPtr.pitch,
        .dstHeight = p->dstPtr.ysize,
        .WidthInBytes = p->extent.width,
        .Height = p->extent.height,
        .Depth = p->extent.depth};
    return copy;
}

static CUresult copy_3d(const struct runtime_driver *d, const struct cudaMemcpy3DParms *p)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D copy = box(p);
    return d->cuMemcpy3D(&copy);
}

static CUresult copy_3d_async(const struct runtime_driver *d, const struct cudaMemcpy3DParms *p,
                              cudaStream_t stream)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D copy = box(p);
    return d->cuMemcpy3DAsync(&copy, stream);
}

static struct cudaMemcpy3DParms plane(void *to, size_t to_pitch, const void *from,
                                      size_t from_pitch, size_t width, size_t height)
{
    return (struct cudaMemcpy3DParms){.srcPtr = {HOST(from), from_pitch, width, height},
                                      .dstPtr = {to, to_pitch, width, height},
                                      .extent = {width, height, 1}};
}

static CUresult copy_2d(const struct runtime_driver *d, void *to, size_t to_pitch, const void *from,
                        size_t from_pitch, size_t width, size_t height)
{
    struct cudaMemcpy3DParms p = plane(to, to_pitch, from, from_pitch, width, height);
    return copy_3d(d, &p);
}

static CUresult copy_2d_async(const struct runtime_driver *d, void *to, size_t to_pitch,
                              const void *from, size_t from_pitch, size_t width, size_t height,
                              cudaStream_t stream)
{
    struct cudaMemcpy3DParms p = plane(to, to_pitch, from, from_pitch, width, height);
    return copy_3d_async(d, &p, stream);
}

CALL_TWIN(cudaMemcpy, _ptds, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind),
          copy(d, to, from, bytes, kind))
CALL_TWIN(cudaMemcpyAsync, _ptsz,
          (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
          copy_async(d, to, from, bytes, kind, stream))
CALL_TWIN(cudaMemcpy2D, _ptds,
          (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
           size_t height, enum cudaMemcpyKind kind),
          ((void)kind, copy_2d(d, to, to_pitch, from, from_pitch, width, height)))
CALL_TWIN(cudaMemcpy2DAsync, _ptsz,
          (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
           size_t height, enum cudaMemcpyKind kind, cudaStream_t stream),
          ((void)kind, copy_2d_async(d, to, to_pitch, from, from_pitch, width, height, stream)))
CALL_TWIN(cudaMemcpy3D, _ptds, (const struct cudaMemcpy3DParms *p), copy_3d(d, p))
CALL_TWIN(cudaMemcpy3DAsync, _ptsz, (const struct cudaMemcpy3DParms *p, cudaStream_t stream),
          copy_3d_async(d, p, stream))
CALL(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t bytes),
     d->cuMemcpyPeer(DEVICE(to), runtime_context_of(to_device), DEVICE(from),
                     runtime_context_of(from_device), bytes))
CALL(cudaMemcpyPeerAsync,
     (void *to, int to_device, const void *from, int from_device, size_t bytes,
      cudaStream_t stream),
     d->cuMemcpyPeerAsync(DEVICE(to), runtime_context_of(to_device), DEVICE(from),
                          runtime_context_of(from_device), bytes, stream))
CALL_TWIN(cudaMemset, _ptds, (void *to, int value, size_t bytes),
          d->cuMemsetD8(DEVICE(to), (unsigned char)value, bytes))
CALL_TWIN(cudaMemsetAsync, _ptsz, (void *to, int value, size_t bytes, cudaStream_t stream),
          d->cuMemsetD8Async(DEVICE(to), (unsigned char)value, bytes, stream))
CALL_TWIN(cudaMemset2D, _ptds, (void *to, size_t pitch, int value, size_t width, size_t height),
          d->cuMemsetD2D8(DEVICE(to), pitch, (unsigned char)value, width, height))
CALL_TWIN(cudaMemset2DAsync, _ptsz,
          (void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
          d->cuMemsetD2D8Async(DEVICE(to), pitch, (unsigned char)value, width, height, stream))
