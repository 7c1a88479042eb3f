/* A range of a copy or a set that begins in memory of the cache must lie in one block that the
 * program holds. Ranges in other memory are the driver's to judge. While a stream is captured
 * nothing is looked at: a graph may be launched when its memory is there. */
#include "interpose/memory/bounds.h"

#include "interpose/context/capture.h"
#include "interpose/memory/faults.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

static struct real_driver below; /* what the table held */

/* Is the range to be refused? */
static int leaves(const char *name, uint64_t address, uint64_t bytes)
{
    struct block_place place;
    if (!address || !bytes || !process_serving() || process_inside || capture_active())
        return 0;
    int code = faults_look(address, &place);
    uint64_t end = place.segment_address + place.offset + place.requested_bytes;
    if (code == ALLOCATOR_INVALID)
        faults_note_range(FAULT_after_free, name, address, bytes, 0);
    else if (code == 0 && (bytes > end || address > end - bytes))
        faults_note_range(FAULT_past_end, name, address, bytes, address + bytes - end);
    else
        return 0;
    return process.config.options.bounds == BOUNDS_REFUSE;
}

/* From the first byte to the last of a pitched range. */
static uint64_t span(uint64_t pitch, uint64_t width, uint64_t height)
{
    return width && height ? pitch * (height - 1) + width : 0;
}

static int copy_2d_leaves(const char *name, const CUDA_MEMCPY2D *copy)
{
    int left = 0;
    if (!copy)
        return 0;
    if (copy->srcMemoryType == CU_MEMORYTYPE_DEVICE || copy->srcMemoryType == CU_MEMORYTYPE_UNIFIED)
        left |= leaves(name, copy->srcDevice + copy->srcY * copy->srcPitch + copy->srcXInBytes,
                       span(copy->srcPitch, copy->WidthInBytes, copy->Height));
    if (copy->dstMemoryType == CU_MEMORYTYPE_DEVICE || copy->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
        left |= leaves(name, copy->dstDevice + copy->dstY * copy->dstPitch + copy->dstXInBytes,
                       span(copy->dstPitch, copy->WidthInBytes, copy->Height));
    return left;
}

static uint64_t start_3d(uint64_t base, uint64_t pitch, uint64_t rows, const size_t at[3])
{
    return base + (at[2] * rows + at[1]) * pitch + at[0];
}

static uint64_t span_3d(uint64_t pitch, uint64_t rows, const size_t size[3])
{
    return size[0] && size[1] && size[2] ? ((size[2] - 1) * rows + size[1] - 1) * pitch + size[0]
                                         : 0;
}

#define SIDE_3D(copy, side)                                                                        \
    ((copy)->side##MemoryType == CU_MEMORYTYPE_DEVICE ||                                           \
     (copy)->side##MemoryType == CU_MEMORYTYPE_UNIFIED) &&                                         \
        leaves(                                                                                    \
            name,                                                                                  \
            start_3d((copy)->side##Device, (copy)->side##Pitch, (copy)->side##Height,              \
                     (const size_t[]){(copy)->side##XInBytes, (copy)->side##Y, (copy)->side##Z}),  \
            span_3d((copy)->side##Pitch, (copy)->side##Height,                                     \
                    (const size_t[]){(copy)->WidthInBytes, (copy)->Height, (copy)->Depth}))

static int copy_3d_leaves(const char *name, const CUDA_MEMCPY3D *copy)
{
    return copy && ((int)(SIDE_3D(copy, src)) | (int)(SIDE_3D(copy, dst)));
}

static int copy_3d_peer_leaves(const char *name, const CUDA_MEMCPY3D_PEER *copy)
{
    return copy && ((int)(SIDE_3D(copy, src)) | (int)(SIDE_3D(copy, dst)));
}

static int both_leave(const char *name, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return leaves(name, to, bytes) | leaves(name, from, bytes);
}

static int batch_leaves(const char *name, const CUdeviceptr *to, const CUdeviceptr *from,
                        const size_t *bytes, size_t count)
{
    int left = 0;
    for (size_t i = 0; to && from && bytes && i < count; i++)
        left |= both_leave(name, to[i], from[i], bytes[i]);
    return left;
}

/* The functions that set values of so many bits, in one dimension and in two. */
#define SET(X, name, of, bits, type)                                                               \
    X(name, leaves(of, to, (bits) / 8 * n), (CUdeviceptr to, type value, size_t n), (to, value, n))
#define SET_ASYNC(X, name, of, bits, type)                                                         \
    X(name, leaves(of, to, (bits) / 8 * n),                                                        \
      (CUdeviceptr to, type value, size_t n, CUstream stream), (to, value, n, stream))
#define SET_2D(X, name, of, bits, type)                                                            \
    X(name, leaves(of, to, span(pitch, (bits) / 8 * width, height)),                               \
      (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),                     \
      (to, pitch, value, width, height))
#define SET_2D_ASYNC(X, name, of, bits, type)                                                      \
    X(name, leaves(of, to, span(pitch, (bits) / 8 * width, height)),                               \
      (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream),    \
      (to, pitch, value, width, height, stream))
#define SETS(X, bits, type)                                                                        \
    SET(X, cuMemsetD##bits##_v2, "cuMemsetD" #bits "_v2", bits, type)                              \
    SET(X, cuMemsetD##bits##_v2_ptds, "cuMemsetD" #bits "_v2", bits, type)                         \
    SET_ASYNC(X, cuMemsetD##bits##Async, "cuMemsetD" #bits "Async", bits, type)                    \
    SET_ASYNC(X, cuMemsetD##bits##Async_ptsz, "cuMemsetD" #bits "Async", bits, type)               \
    SET_2D(X, cuMemsetD2D##bits##_v2, "cuMemsetD2D" #bits "_v2", bits, type)                       \
    SET_2D(X, cuMemsetD2D##bits##_v2_ptds, "cuMemsetD2D" #bits "_v2", bits, type)                  \
    SET_2D_ASYNC(X, cuMemsetD2D##bits##Async, "cuMemsetD2D" #bits "Async", bits, type)             \
    SET_2D_ASYNC(X, cuMemsetD2D##bits##Async_ptsz, "cuMemsetD2D" #bits "Async", bits, type)

/* The functions that look: X(name, left, parameters, arguments); refused if `left` says so. */
#define LOOKS(X)                                                                                   \
    X(cuMemcpy, both_leave("cuMemcpy", to, from, bytes),                                           \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))                         \
    X(cuMemcpy_ptds, both_leave("cuMemcpy", to, from, bytes),                                      \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))                         \
    X(cuMemcpyAsync, both_leave("cuMemcpyAsync", to, from, bytes),                                 \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),                           \
      (to, from, bytes, stream))                                                                   \
    X(cuMemcpyAsync_ptsz, both_leave("cuMemcpyAsync", to, from, bytes),                            \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),                           \
      (to, from, bytes, stream))                                                                   \
    X(cuMemcpyDtoD_v2, both_leave("cuMemcpyDtoD_v2", to, from, bytes),                             \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))                         \
    X(cuMemcpyDtoD_v2_ptds, both_leave("cuMemcpyDtoD_v2", to, from, bytes),                        \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))                         \
    X(cuMemcpyDtoDAsync_v2, both_leave("cuMemcpyDtoDAsync_v2", to, from, bytes),                   \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),                           \
      (to, from, bytes, stream))                                                                   \
    X(cuMemcpyDtoDAsync_v2_ptsz, both_leave("cuMemcpyDtoDAsync_v2", to, from, bytes),              \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),                           \
      (to, from, bytes, stream))                                                                   \
    X(cuMemcpyHtoD_v2, leaves("cuMemcpyHtoD_v2", to, bytes),                                       \
      (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes))                         \
    X(cuMemcpyHtoD_v2_ptds, leaves("cuMemcpyHtoD_v2", to, bytes),                                  \
      (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes))                         \
    X(cuMemcpyHtoDAsync_v2, leaves("cuMemcpyHtoDAsync_v2", to, bytes),                             \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),                           \
      (to, from, bytes, stream))                                                                   \
    X(cuMemcpyHtoDAsync_v2_ptsz, leaves("cuMemcpyHtoDAsync_v2", to, bytes),                        \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),                           \
      (to, from, bytes, stream))                                                                   \
    X(cuMemcpyDtoH_v2, leaves("cuMemcpyDtoH_v2", from, bytes),                                     \
      (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))                               \
    X(cuMemcpyDtoH_v2_ptds, leaves("cuMemcpyDtoH_v2", from, bytes),                                \
      (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))                               \
    X(cuMemcpyDtoHAsync_v2, leaves("cuMemcpyDtoHAsync_v2", from, bytes),                           \
      (void *to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))      \
    X(cuMemcpyDtoHAsync_v2_ptsz, leaves("cuMemcpyDtoHAsync_v2", from, bytes),                      \
      (void *to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))      \
    X(cuMemcpyPeer, both_leave("cuMemcpyPeer", to, from, bytes),                                   \
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,             \
       size_t bytes),                                                                              \
      (to, to_context, from, from_context, bytes))                                                 \
    X(cuMemcpyPeer_ptds, both_leave("cuMemcpyPeer", to, from, bytes),                              \
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,             \
       size_t bytes),                                                                              \
      (to, to_context, from, from_context, bytes))                                                 \
    X(cuMemcpyPeerAsync, both_leave("cuMemcpyPeerAsync", to, from, bytes),                         \
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,             \
       size_t bytes, CUstream stream),                                                             \
      (to, to_context, from, from_context, bytes, stream))                                         \
    X(cuMemcpyPeerAsync_ptsz, both_leave("cuMemcpyPeerAsync", to, from, bytes),                    \
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,             \
       size_t bytes, CUstream stream),                                                             \
      (to, to_context, from, from_context, bytes, stream))                                         \
    SETS(X, 8, unsigned char)                                                                      \
    SETS(X, 16, unsigned short)                                                                    \
    SETS(X, 32, unsigned int)                                                                      \
    X(cuMemcpy2D_v2, copy_2d_leaves("cuMemcpy2D_v2", copy), (const CUDA_MEMCPY2D *copy), (copy))   \
    X(cuMemcpy2D_v2_ptds, copy_2d_leaves("cuMemcpy2D_v2", copy), (const CUDA_MEMCPY2D *copy),      \
      (copy))                                                                                      \
    X(cuMemcpy2DUnaligned_v2, copy_2d_leaves("cuMemcpy2DUnaligned_v2", copy),                      \
      (const CUDA_MEMCPY2D *copy), (copy))                                                         \
    X(cuMemcpy2DUnaligned_v2_ptds, copy_2d_leaves("cuMemcpy2DUnaligned_v2", copy),                 \
      (const CUDA_MEMCPY2D *copy), (copy))                                                         \
    X(cuMemcpy2DAsync_v2, copy_2d_leaves("cuMemcpy2DAsync_v2", copy),                              \
      (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream))                                \
    X(cuMemcpy2DAsync_v2_ptsz, copy_2d_leaves("cuMemcpy2DAsync_v2", copy),                         \
      (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream))                                \
    X(cuMemcpy3D_v2, copy_3d_leaves("cuMemcpy3D_v2", copy), (const CUDA_MEMCPY3D *copy), (copy))   \
    X(cuMemcpy3D_v2_ptds, copy_3d_leaves("cuMemcpy3D_v2", copy), (const CUDA_MEMCPY3D *copy),      \
      (copy))                                                                                      \
    X(cuMemcpy3DAsync_v2, copy_3d_leaves("cuMemcpy3DAsync_v2", copy),                              \
      (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream))                                \
    X(cuMemcpy3DAsync_v2_ptsz, copy_3d_leaves("cuMemcpy3DAsync_v2", copy),                         \
      (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream))                                \
    X(cuMemcpy3DPeer, copy_3d_peer_leaves("cuMemcpy3DPeer", copy),                                 \
      (const CUDA_MEMCPY3D_PEER *copy), (copy))                                                    \
    X(cuMemcpy3DPeer_ptds, copy_3d_peer_leaves("cuMemcpy3DPeer", copy),                            \
      (const CUDA_MEMCPY3D_PEER *copy), (copy))                                                    \
    X(cuMemcpy3DPeerAsync, copy_3d_peer_leaves("cuMemcpy3DPeerAsync", copy),                       \
      (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream))                           \
    X(cuMemcpy3DPeerAsync_ptsz, copy_3d_peer_leaves("cuMemcpy3DPeerAsync", copy),                  \
      (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream))                           \
    X(cuMemcpyBatchAsync_v2, batch_leaves("cuMemcpyBatchAsync_v2", to, from, bytes, count),        \
      (CUdeviceptr * to, CUdeviceptr * from, size_t * bytes, size_t count,                         \
       CUmemcpyAttributes * attributes, size_t * begins, size_t n, CUstream stream),               \
      (to, from, bytes, count, attributes, begins, n, stream))                                     \
    X(cuMemcpyBatchAsync_v2_ptsz, batch_leaves("cuMemcpyBatchAsync_v2", to, from, bytes, count),   \
      (CUdeviceptr * to, CUdeviceptr * from, size_t * bytes, size_t count,                         \
       CUmemcpyAttributes * attributes, size_t * begins, size_t n, CUstream stream),               \
      (to, from, bytes, count, attributes, begins, n, stream))                                     \
    X(cuMemcpyBatchAsync, batch_leaves("cuMemcpyBatchAsync", to, from, bytes, count),              \
      (CUdeviceptr * to, CUdeviceptr * from, size_t * bytes, size_t count,                         \
       CUmemcpyAttributes * attributes, size_t * begins, size_t n, size_t * failed,                \
       CUstream stream),                                                                           \
      (to, from, bytes, count, attributes, begins, n, failed, stream))                             \
    X(cuMemcpyBatchAsync_ptsz, batch_leaves("cuMemcpyBatchAsync", to, from, bytes, count),         \
      (CUdeviceptr * to, CUdeviceptr * from, size_t * bytes, size_t count,                         \
       CUmemcpyAttributes * attributes, size_t * begins, size_t n, size_t * failed,                \
       CUstream stream),                                                                           \
      (to, from, bytes, count, attributes, begins, n, failed, stream))

#define CHECKED(name, left, parameters, arguments)                                                 \
    static CUresult checked_##name parameters                                                      \
    {                                                                                              \
        return left ? CUDA_ERROR_INVALID_VALUE : below.name arguments;                             \
    }
LOOKS(CHECKED)

void bounds_begin(void)
{
    if (process.config.options.bounds == BOUNDS_OFF ||
        real_table.cuMemcpyDtoH_v2 == checked_cuMemcpyDtoH_v2)
        return; /* a child has its parent's table */
    below = *real();
#define REPLACE(name, left, parameters, arguments)                                                 \
    __atomic_store_n(&real_table.name, checked_##name, __ATOMIC_RELEASE);
    LOOKS(REPLACE)
}
