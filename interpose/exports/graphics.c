/* Exported: work in a stream on semaphores and resources shared with graphics interfaces. */
#include "interpose/exports/submit_wrapper.h"

SUBMIT_TWINS(others, cuSignalExternalSemaphoresAsync,
             (const CUexternalSemaphore *semaphores,
              const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *parameters, unsigned int count,
              CUstream stream),
             (semaphores, parameters, count, stream))
SUBMIT_TWINS(others, cuWaitExternalSemaphoresAsync,
             (const CUexternalSemaphore *semaphores,
              const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *parameters, unsigned int count,
              CUstream stream),
             (semaphores, parameters, count, stream))

SUBMIT_TWINS(others, cuGraphicsMapResources,
             (unsigned int count, CUgraphicsResource *resources, CUstream stream),
             (count, resources, stream))
SUBMIT_TWINS(others, cuGraphicsUnmapResources,
             (unsigned int count, CUgraphicsResource *resources, CUstream stream),
             (count, resources, stream))
SUBMIT(others, cuGLMapBufferObjectAsync, 0, stream,
       (unsigned int *pointer, unsigned int *bytes, unsigned int buffer, CUstream stream),
       (pointer, bytes, buffer, stream))
SUBMIT_TWINS(others, cuGLMapBufferObjectAsync_v2,
             (CUdeviceptr * pointer, size_t *bytes, unsigned int buffer, CUstream stream),
             (pointer, bytes, buffer, stream))
SUBMIT(others, cuGLUnmapBufferObjectAsync, 0, stream, (unsigned int buffer, CUstream stream),
       (buffer, stream))

/* Without a stream these use the default one. */
#define EGL(name, parameters, arguments)                                                           \
    SUBMIT(others, name, 0, stream ? *stream : NULL, parameters, arguments)
EGL(cuEGLStreamConsumerAcquireFrame,
    (CUeglStreamConnection * connection, CUgraphicsResource *frame, CUstream *stream,
     unsigned int timeout),
    (connection, frame, stream, timeout))
EGL(cuEGLStreamConsumerReleaseFrame,
    (CUeglStreamConnection * connection, CUgraphicsResource frame, CUstream *stream),
    (connection, frame, stream))
EGL(cuEGLStreamProducerPresentFrame,
    (CUeglStreamConnection * connection, struct cuda_egl_frame frame, CUstream *stream),
    (connection, frame, stream))
EGL(cuEGLStreamProducerReturnFrame,
    (CUeglStreamConnection * connection, struct cuda_egl_frame *frame, CUstream *stream),
    (connection, frame, stream))
