/* Exported: copies and sets of the 32-bit era. Drivers still export them, and cuGetProcAddress
 * returns them for versions before 3.2. They have no per-thread twins. */
#include "interpose/stream/copy_destination.h"
#include "interpose/exports/submit_wrapper.h"

#define OLD(kind, name, parameters, arguments) SUBMIT(kind, name, 0, NULL, parameters, arguments)
#define OLD_ASYNC(name, to_host, parameters, arguments)                                            \
    SUBMIT_TO_HOST(copies, name, 0, stream, to_host, parameters, arguments)
#define SET(name, value_type)                                                                      \
    OLD(sets, name, (CUdeviceptr_v1 to, value_type value, unsigned int n), (to, value, n))
#define SET_2D(name, value_type)                                                                   \
    OLD(sets, name,                                                                                \
        (CUdeviceptr_v1 to, unsigned int pitch, value_type value, unsigned int width,              \
         unsigned int height),                                                                     \
        (to, pitch, value, width, height))

OLD(copies, cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, unsigned int bytes),
    (to, from, bytes))
OLD(copies, cuMemcpyDtoH, (void *to, CUdeviceptr_v1 from, unsigned int bytes), (to, from, bytes))
OLD(copies, cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes),
    (to, from, bytes))
OLD(copies, cuMemcpyDtoA, (CUarray to, unsigned int at, CUdeviceptr_v1 from, unsigned int bytes),
    (to, at, from, bytes))
OLD(copies, cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned int at, unsigned int bytes),
    (to, from, at, bytes))
OLD(copies, cuMemcpyHtoA, (CUarray to, unsigned int at, const void *from, unsigned int bytes),
    (to, at, from, bytes))
OLD(copies, cuMemcpyAtoH, (void *to, CUarray from, unsigned int at, unsigned int bytes),
    (to, from, at, bytes))
OLD(copies, cuMemcpyAtoA,
    (CUarray to, unsigned int to_at, CUarray from, unsigned int from_at, unsigned int bytes),
    (to, to_at, from, from_at, bytes))
OLD(copies, cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *copy), (copy))
OLD(copies, cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *copy), (copy))
OLD(copies, cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *copy), (copy))

OLD_ASYNC(cuMemcpyHtoDAsync, 0,
          (CUdeviceptr_v1 to, const void *from, unsigned int bytes, CUstream stream),
          (to, from, bytes, stream))
OLD_ASYNC(cuMemcpyDtoHAsync, 1,
          (void *to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream),
          (to, from, bytes, stream))
OLD_ASYNC(cuMemcpyDtoDAsync, 0,
          (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream),
          (to, from, bytes, stream))
OLD_ASYNC(cuMemcpyHtoAAsync, 0,
          (CUarray to, unsigned int at, const void *from, unsigned int bytes, CUstream stream),
          (to, at, from, bytes, stream))
OLD_ASYNC(cuMemcpyAtoHAsync, 1,
          (void *to, CUarray from, unsigned int at, unsigned int bytes, CUstream stream),
          (to, from, at, bytes, stream))
OLD_ASYNC(cuMemcpy2DAsync, destination_2d_v1(copy), (const CUDA_MEMCPY2D_v1 *copy, CUstream stream),
          (copy, stream))
OLD_ASYNC(cuMemcpy3DAsync, destination_3d_v1(copy), (const CUDA_MEMCPY3D_v1 *copy, CUstream stream),
          (copy, stream))

SET(cuMemsetD8, unsigned char)
SET(cuMemsetD16, unsigned short)
SET(cuMemsetD32, unsigned int)
SET_2D(cuMemsetD2D8, unsigned char)
SET_2D(cuMemsetD2D16, unsigned short)
SET_2D(cuMemsetD2D32, unsigned int)
