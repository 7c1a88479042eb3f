/* Exported: memory sets, in the default stream and in any stream. */
#include "interpose/exports/submit_wrapper.h"

#define SET(name, value_type)                                                                      \
    SUBMIT_DEFAULT(sets, name, (CUdeviceptr to, value_type value, size_t n), (to, value, n))
#define SET_2D(name, value_type)                                                                   \
    SUBMIT_DEFAULT(sets, name,                                                                     \
                   (CUdeviceptr to, size_t pitch, value_type value, size_t width, size_t height),  \
                   (to, pitch, value, width, height))
#define SET_ASYNC(name, value_type)                                                                \
    SUBMIT_TWINS(sets, name, (CUdeviceptr to, value_type value, size_t n, CUstream stream),        \
                 (to, value, n, stream))
#define SET_2D_ASYNC(name, value_type)                                                             \
    SUBMIT_TWINS(sets, name,                                                                       \
                 (CUdeviceptr to, size_t pitch, value_type value, size_t width, size_t height,     \
                  CUstream stream),                                                                \
                 (to, pitch, value, width, height, stream))

SET(cuMemsetD8_v2, unsigned char)
SET(cuMemsetD16_v2, unsigned short)
SET(cuMemsetD32_v2, unsigned int)
SET_2D(cuMemsetD2D8_v2, unsigned char)
SET_2D(cuMemsetD2D16_v2, unsigned short)
SET_2D(cuMemsetD2D32_v2, unsigned int)
SET_ASYNC(cuMemsetD8Async, unsigned char)
SET_ASYNC(cuMemsetD16Async, unsigned short)
SET_ASYNC(cuMemsetD32Async, unsigned int)
SET_2D_ASYNC(cuMemsetD2D8Async, unsigned char)
SET_2D_ASYNC(cuMemsetD2D16Async, unsigned short)
SET_2D_ASYNC(cuMemsetD2D32Async, unsigned int)
