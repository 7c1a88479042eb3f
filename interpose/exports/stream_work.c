/* Exported: work in a stream other than kernels, copies and sets. */
#include "interpose/exports/submit_wrapper.h"

#define VALUE(name, type, begun)                                                                   \
    VALUE_TWIN(name, 0, type, begun)                                                               \
    VALUE_TWIN(name##_ptsz, 1, type, begun)
#define VALUE_TWIN(name, per_thread, type, begun)                                                  \
    SUBMIT_BEGUN(memory_operations, name, per_thread, stream, begun, 0,                            \
                 (CUstream stream, CUdeviceptr address, type value, unsigned int flags),           \
                 (stream, address, value, flags))
#define BATCH(name, per_thread)                                                                    \
    SUBMIT_BEGUN(memory_operations, name, per_thread, stream, submit_waits(), 0,                   \
                 (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,       \
                  unsigned int flags),                                                             \
                 (stream, count, operations, flags))

VALUE(cuStreamWaitValue32, cuuint32_t, submit_waits())
VALUE(cuStreamWaitValue32_v2, cuuint32_t, submit_waits())
VALUE(cuStreamWaitValue64, cuuint64_t, submit_waits())
VALUE(cuStreamWaitValue64_v2, cuuint64_t, submit_waits())
VALUE(cuStreamWriteValue32, cuuint32_t, (void)0)
VALUE(cuStreamWriteValue32_v2, cuuint32_t, (void)0)
VALUE(cuStreamWriteValue64, cuuint64_t, (void)0)
VALUE(cuStreamWriteValue64_v2, cuuint64_t, (void)0)
BATCH(cuStreamBatchMemOp, 0)
BATCH(cuStreamBatchMemOp_ptsz, 1)
BATCH(cuStreamBatchMemOp_v2, 0)
BATCH(cuStreamBatchMemOp_v2_ptsz, 1)

SUBMIT_TWINS(others, cuMemPrefetchAsync,
             (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream),
             (pointer, bytes, device, stream))
SUBMIT_TWINS(others, cuMemPrefetchAsync_v2,
             (CUdeviceptr pointer, size_t bytes, CUmemLocation place, unsigned int flags,
              CUstream stream),
             (pointer, bytes, place, flags, stream))
SUBMIT_TWINS(others, cuMemPrefetchBatchAsync,
             (CUdeviceptr * pointers, size_t *bytes, size_t count, CUmemLocation *places,
              size_t *begins, size_t n, unsigned long long flags, CUstream stream),
             (pointers, bytes, count, places, begins, n, flags, stream))
SUBMIT_TWINS(others, cuMemDiscardBatchAsync,
             (CUdeviceptr * pointers, size_t *bytes, size_t count, unsigned long long flags,
              CUstream stream),
             (pointers, bytes, count, flags, stream))
SUBMIT_TWINS(others, cuMemDiscardAndPrefetchBatchAsync,
             (CUdeviceptr * pointers, size_t *bytes, size_t count, CUmemLocation *places,
              size_t *begins, size_t n, unsigned long long flags, CUstream stream),
             (pointers, bytes, count, places, begins, n, flags, stream))
SUBMIT_TWINS(others, cuMemBatchDecompressAsync,
             (CUmemDecompressParams * operations, size_t count, unsigned int flags, size_t *failed,
              CUstream stream),
             (operations, count, flags, failed, stream))
SUBMIT_TWINS(others, cuMemMapArrayAsync,
             (CUarrayMapInfo * maps, unsigned int count, CUstream stream), (maps, count, stream))
SUBMIT_TWINS(others, cuStreamAttachMemAsync,
             (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned int flags),
             (stream, pointer, bytes, flags))
