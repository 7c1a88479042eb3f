/* Exported: copies. In the default stream, a copy to the host is complete when the function
 * returns. */
#include "interpose/exports/submit_wrapper.h"
#include "interpose/stream/copy_destination.h"

SUBMIT_DEFAULT(copies, cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
               (to, from, bytes))
SUBMIT_DEFAULT(copies, cuMemcpyPeer,
               (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                size_t bytes),
               (to, to_context, from, from_context, bytes))
SUBMIT_DEFAULT(copies, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes),
               (to, from, bytes))
SUBMIT_DEFAULT(copies, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes),
               (to, from, bytes))
SUBMIT_DEFAULT(copies, cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
               (to, from, bytes))
SUBMIT_DEFAULT(copies, cuMemcpyDtoA_v2, (CUarray to, size_t at, CUdeviceptr from, size_t bytes),
               (to, at, from, bytes))
SUBMIT_DEFAULT(copies, cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t at, size_t bytes),
               (to, from, at, bytes))
SUBMIT_DEFAULT(copies, cuMemcpyHtoA_v2, (CUarray to, size_t at, const void *from, size_t bytes),
               (to, at, from, bytes))
SUBMIT_DEFAULT(copies, cuMemcpyAtoH_v2, (void *to, CUarray from, size_t at, size_t bytes),
               (to, from, at, bytes))
SUBMIT_DEFAULT(copies, cuMemcpyAtoA_v2,
               (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t bytes),
               (to, to_at, from, from_at, bytes))
SUBMIT_DEFAULT(copies, cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy), (copy))
SUBMIT_DEFAULT(copies, cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy), (copy))
SUBMIT_DEFAULT(copies, cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy), (copy))
SUBMIT_DEFAULT(copies, cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *copy), (copy))

SUBMIT_TWINS_TO_HOST(copies, cuMemcpyAsync, destination_is_host(to),
                     (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
                     (to, from, bytes, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpyPeerAsync, destination_is_host(to),
                     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes, CUstream stream),
                     (to, to_context, from, from_context, bytes, stream))
SUBMIT_TWINS(copies, cuMemcpyHtoDAsync_v2,
             (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
             (to, from, bytes, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpyDtoHAsync_v2, 1,
                     (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
                     (to, from, bytes, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpyDtoDAsync_v2, destination_is_host(to),
                     (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
                     (to, from, bytes, stream))
SUBMIT_TWINS(copies, cuMemcpyHtoAAsync_v2,
             (CUarray to, size_t at, const void *from, size_t bytes, CUstream stream),
             (to, at, from, bytes, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpyAtoHAsync_v2, 1,
                     (void *to, CUarray from, size_t at, size_t bytes, CUstream stream),
                     (to, from, at, bytes, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpy2DAsync_v2, destination_2d(copy),
                     (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpy3DAsync_v2, destination_3d(copy),
                     (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpy3DPeerAsync, destination_3d_peer(copy),
                     (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpyBatchAsync, destination_batch(to, count),
                     (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count,
                      CUmemcpyAttributes *attributes, size_t *begins, size_t n, size_t *failed,
                      CUstream stream),
                     (to, from, bytes, count, attributes, begins, n, failed, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpyBatchAsync_v2, destination_batch(to, count),
                     (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count,
                      CUmemcpyAttributes *attributes, size_t *begins, size_t n, CUstream stream),
                     (to, from, bytes, count, attributes, begins, n, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpy3DBatchAsync, destination_3d_batch(copies, count),
                     (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed,
                      unsigned long long flags, CUstream stream),
                     (count, copies, failed, flags, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpy3DBatchAsync_v2, destination_3d_batch(copies, count),
                     (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags,
                      CUstream stream),
                     (count, copies, flags, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpyWithAttributesAsync, destination_is_host(to),
                     (CUdeviceptr to, CUdeviceptr from, size_t bytes,
                      CUmemcpyAttributes *attributes, CUstream stream),
                     (to, from, bytes, attributes, stream))
SUBMIT_TWINS_TO_HOST(copies, cuMemcpy3DWithAttributesAsync, destination_3d_batch(copy, 1),
                     (CUDA_MEMCPY3D_BATCH_OP * copy, unsigned long long flags, CUstream stream),
                     (copy, flags, stream))
/* Our toolkit may not know this operation's type. */
SUBMIT_TWINS_TO_HOST(copies, cuFabricCpyBatchAsync, 1,
                     (size_t count, CUDA_FABRIC_COPY_BATCH_OP *copies, unsigned long long flags,
                      CUstream stream),
                     (count, copies, flags, stream))
