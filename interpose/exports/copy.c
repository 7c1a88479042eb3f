/* Exported: copies in the default stream. What they bring to the host is there when they return. */
#include "interpose/exports/submit_wrapper.h"

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
