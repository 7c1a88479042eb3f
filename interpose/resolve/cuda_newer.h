/* Functions that carry work, or take addresses, and that only newer toolkits' cuda.h declare (12.8 to 13.5): a program
 * may be built with a newer toolkit than this library. With a newer toolkit the compiler compares
 * the declarations. Also functions of cudaGL.h, cudaVDPAU.h and cudaEGL.h, which need further
 * headers. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_CUDA_NEWER_H
#define CACHALOT_INTERPOSE_RESOLVE_CUDA_NEWER_H

#include <cuda.h>
#include <stdint.h>

#if CUDA_VERSION < 13030
typedef void (*CUgraphRecaptureCallback)(void); /* passed on, never called */
#endif
typedef struct CUDA_FABRIC_COPY_BATCH_OP_st CUDA_FABRIC_COPY_BATCH_OP;
typedef struct CUeglStreamConnection_st *CUeglStreamConnection;

/* CUeglFrame, by size: it is passed by value. */
struct cuda_egl_frame {
    void *plane[3];
    unsigned int shape[6], format[3];
};

/* A function and its per-thread twin. */
#define TWINS(name, parameters) CUresult name parameters, name##_ptsz parameters

#pragma GCC visibility push(default)
TWINS(cuMemcpyBatchAsync_v2, (CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *,
                              size_t *, size_t, CUstream)); /* 13.0 */
TWINS(cuMemcpy3DBatchAsync_v2, (size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream));
TWINS(cuMemPrefetchBatchAsync, (CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t,
                                unsigned long long, CUstream));
TWINS(cuMemDiscardBatchAsync, (CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream));
TWINS(cuMemDiscardAndPrefetchBatchAsync, (CUdeviceptr *, size_t *, size_t, CUmemLocation *,
                                          size_t *, size_t, unsigned long long, CUstream));
TWINS(cuLaunchHostFunc_v2, (CUstream, CUhostFn, void *, unsigned int)); /* 13.1 */
TWINS(cuMemcpyWithAttributesAsync,
      (CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes *, CUstream)); /* 13.2 */
TWINS(cuMemcpy3DWithAttributesAsync, (CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream));
TWINS(cuStreamBeginRecaptureToGraph,
      (CUstream, CUstreamCaptureMode, CUgraph, CUgraphRecaptureCallback, void *)); /* 13.3 */
TWINS(cuFabricCpyBatchAsync,
      (size_t, CUDA_FABRIC_COPY_BATCH_OP *, unsigned long long, CUstream)); /* 13.5 */
CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr, size_t,
                                unsigned long long); /* 13.1 */
CUresult cuLogicalEndpointBindAddr(cuuint32_t, CUdevice, cuuint64_t, void *, cuuint64_t,
                                   unsigned long long);                              /* 13.3 */
CUresult cuMemGetLocationInfo(CUdeviceptr, size_t, size_t, size_t, CUmemLocation *); /* 13.4 */
CUresult cuGraphAddNode_v3(CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *,
                           size_t, CUgraphNodeParams *);
CUresult cuGraphNodeSetParams_v2(CUgraphNode, CUgraphNodeParams *);

CUresult cuGLCtxCreate(CUcontext *, unsigned int, CUdevice);
CUresult cuGLCtxCreate_v2(CUcontext *, unsigned int, CUdevice);
CUresult cuVDPAUCtxCreate(CUcontext *, unsigned int, CUdevice, uint32_t, void *);
CUresult cuVDPAUCtxCreate_v2(CUcontext *, unsigned int, CUdevice, uint32_t, void *);
CUresult cuGLMapBufferObjectAsync(unsigned int *, unsigned int *, unsigned int, CUstream);
TWINS(cuGLMapBufferObjectAsync_v2, (CUdeviceptr *, size_t *, unsigned int, CUstream));
CUresult cuGLUnmapBufferObjectAsync(unsigned int, CUstream);
CUresult cuEGLStreamConsumerAcquireFrame(CUeglStreamConnection *, CUgraphicsResource *, CUstream *,
                                         unsigned int);
CUresult cuEGLStreamConsumerReleaseFrame(CUeglStreamConnection *, CUgraphicsResource, CUstream *);
CUresult cuEGLStreamProducerPresentFrame(CUeglStreamConnection *, struct cuda_egl_frame,
                                         CUstream *);
CUresult cuEGLStreamProducerReturnFrame(CUeglStreamConnection *, struct cuda_egl_frame *,
                                        CUstream *);
#pragma GCC visibility pop
#undef TWINS

#endif
