/* Included before samples of CUDA 12's time, so that they build with CUDA 13, too: what that took
 * out of cudaDeviceProp is asked for by attribute, and functions may have the arguments that they
 * had. */
#ifndef CACHALOT_TEST_GPU_OLDER_SAMPLES_H
#define CACHALOT_TEST_GPU_OLDER_SAMPLES_H

#include <cuda.h>
#include <cuda_runtime.h>

#if CUDART_VERSION >= 13000

struct older_properties : cudaDeviceProp {
    int clockRate, computeMode, deviceOverlap;
};

static inline cudaError_t older_get_properties(older_properties *properties, int device)
{
    cudaDeviceGetAttribute(&properties->clockRate, cudaDevAttrClockRate, device);
    cudaDeviceGetAttribute(&properties->computeMode, cudaDevAttrComputeMode, device);
    cudaDeviceGetAttribute(&properties->deviceOverlap, cudaDevAttrGpuOverlap, device);
    return cudaGetDeviceProperties(properties, device);
}

#define cudaDeviceProp older_properties
#define cudaGetDeviceProperties older_get_properties

static inline cudaMemLocation older_location(int device)
{
    cudaMemLocation where = {};
    where.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
    where.id = device == cudaCpuDeviceId ? 0 : device;
    return where;
}

static inline CUresult cuCtxCreate_v4(CUcontext *context, unsigned flags, CUdevice device)
{
    return cuCtxCreate_v4(context, nullptr, flags, device);
}

static inline cudaError_t cudaMemPrefetchAsync(const void *address, size_t bytes, int device,
                                               cudaStream_t stream = 0)
{
    return cudaMemPrefetchAsync(address, bytes, older_location(device), 0, stream);
}

static inline cudaError_t cudaMemAdvise(const void *address, size_t bytes, cudaMemoryAdvise advice,
                                        int device)
{
    return cudaMemAdvise(address, bytes, advice, older_location(device));
}

static inline cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                           const cudaGraphNode_t *after, size_t count,
                                           cudaGraphNodeParams *parameters)
{
    return cudaGraphAddNode(node, graph, after, nullptr, count, parameters);
}

static inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                   cudaStreamCaptureStatus *status,
                                                   unsigned long long *id, cudaGraph_t *graph,
                                                   const cudaGraphNode_t **last, size_t *count)
{
    return cudaStreamGetCaptureInfo(stream, status, id, graph, last, nullptr, count);
}

static inline cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                              cudaGraphNode_t *nodes, size_t count,
                                                              unsigned flags)
{
    return cudaStreamUpdateCaptureDependencies(stream, nodes, nullptr, count, flags);
}

#endif
#endif
