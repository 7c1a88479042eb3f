/*
 * Devices, errors' names, peers.
 */
#include "calls.h"

#include <string.h>

static CUresult device_count(const struct runtime_driver *d, int *count)
{
    return count ? d->cuDeviceGetCount(count) : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    const struct runtime_driver *d = runtime_peek();
    return runtime_end(d ? device_count(d, count) : runtime_failed());
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    const struct runtime_driver *d = runtime_peek();
    return runtime_end(d ? d->cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device)
                         : runtime_failed());
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    const struct runtime_driver *d = runtime_peek();
    if (!d)
        return runtime_end(runtime_failed());
    if (!properties)
        return runtime_fail(cudaErrorInvalidValue);
    memset(properties, 0, sizeof(*properties));
    CUresult result = d->cuDeviceGetName(properties->name, sizeof(properties->name), device);
    if (result)
        return runtime_end(result);
    d->cuDeviceGetUuid((CUuuid *)&properties->uuid, device);
    d->cuDeviceTotalMem(&properties->totalGlobalMem, device);
    properties->major = 9;
    properties->multiProcessorCount = 1;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->unifiedAddressing = 1;
    properties->managedMemory = 1;
    properties->concurrentKernels = 1;
    properties->memoryPoolsSupported = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    const struct runtime_driver *d = runtime_peek();
    return runtime_end(d ? d->cuDeviceCanAccessPeer(can, device, peer) : runtime_failed());
}

CALL(cudaDeviceSynchronize, (void), d->cuCtxSynchronize())
CALL(cudaDeviceEnablePeerAccess, (int peer, unsigned flags),
     d->cuCtxEnablePeerAccess(runtime_context_of(peer), flags))
CALL(cudaDeviceDisablePeerAccess, (int peer), d->cuCtxDisablePeerAccess(runtime_context_of(peer)))
CALL(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
     d->cuCtxGetStreamPriorityRange(least, greatest))
CALL(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device),
     d->cuDeviceGetDefaultMemPool(pool, device))
CALL(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device), d->cuDeviceGetMemPool(pool, device))
CALL(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), d->cuDeviceSetMemPool(device, pool))
CALL(cudaProfilerStart, (void), d->cuProfilerStart())
CALL(cudaProfilerStop, (void), d->cuProfilerStop())

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction",
     "invalid device function (a simulated device runs no kernels)"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

#define ERRORS (sizeof(errors) / sizeof(errors[0]))

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < ERRORS; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < ERRORS; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unrecognized error code";
}
