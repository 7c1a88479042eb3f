/* Exported: contexts, streams, captures, modules: what we react to, and what may fail because our
 * cache holds memory. */
#include "interpose/capture.h"
#include "interpose/context.h"
#include "interpose/memory.h"
#include "interpose/process.h"
#include "interpose/real.h"

#define RETRIED(result, call)                                                                      \
    do                                                                                             \
        (result) = (call);                                                                         \
    while (memory_retry((result), &tries))

/* A function that only needs the second try. */
#define RETRY(name, parameters, arguments)                                                         \
    CUresult name parameters                                                                       \
    {                                                                                              \
        CUresult result;                                                                           \
        int tries = 0;                                                                             \
        RETRIED(result, real()->name arguments);                                                   \
        return result;                                                                             \
    }

RETRY(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device),
      (context, flags, device))
RETRY(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
      (context, flags, device))
RETRY(cuCtxCreate_v3,
      (CUcontext * context, CUexecAffinityParam *affinity, int n, unsigned int flags,
       CUdevice device),
      (context, affinity, n, flags, device))
RETRY(cuCtxCreate_v4,
      (CUcontext * context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device),
      (context, parameters, flags, device))
RETRY(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device))
RETRY(cuModuleLoad, (CUmodule * module, const char *path), (module, path))
RETRY(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
RETRY(cuModuleLoadDataEx,
      (CUmodule * module, const void *image, unsigned int n, CUjit_option *options, void **values),
      (module, image, n, options, values))
RETRY(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image))
RETRY(cuLibraryLoadData,
      (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values,
       unsigned int jit_n, CUlibraryOption *options, void **values, unsigned int n),
      (library, code, jit, jit_values, jit_n, options, values, n))
RETRY(cuLibraryLoadFromFile,
      (CUlibrary * library, const char *path, CUjit_option *jit, void **jit_values,
       unsigned int jit_n, CUlibraryOption *options, void **values, unsigned int n),
      (library, path, jit, jit_values, jit_n, options, values, n))
RETRY(cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags))
RETRY(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority),
      (stream, flags, priority))
RETRY(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
      (exec, graph, flags))
RETRY(cuGraphInstantiateWithParams,
      (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters),
      (exec, graph, parameters))
RETRY(cuGraphInstantiateWithParams_ptsz,
      (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters),
      (exec, graph, parameters))
RETRY(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *properties), (pool, properties))

/* The driver refuses to destroy a primary context, whose blocks then live on. */
static CUresult destroy(CUresult (*call)(CUcontext), CUcontext context)
{
    int serving = process_serving(), primary = serving && context_is_primary(context);
    if (serving && !primary)
        context_forget(context);
    CUresult result = call(context);
    if (primary && result == CUDA_SUCCESS)
        context_forget(context);
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return destroy(real()->cuCtxDestroy, context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return destroy(real()->cuCtxDestroy_v2, context);
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    CUresult result = real()->cuCtxFromGreenCtx(context, green);
    if (process_serving() && result == CUDA_SUCCESS)
        context_refuse(*context);
    return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext context = NULL;
    if (process_serving() && real()->cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS)
        context_forget(context);
    return real()->cuGreenCtxDestroy(green);
}

/* Counted by the driver: only the last release ends the context. */
static CUresult release_primary(CUresult (*release)(CUdevice), CUdevice device)
{
    if (!process_serving())
        return release(device);
    context_suspend_primary(device, 1);
    CUresult result = release(device);
    if (result == CUDA_SUCCESS && !context_primary_is_active(device))
        context_forget_primary(device);
    else
        context_suspend_primary(device, 0);
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return release_primary(real()->cuDevicePrimaryCtxRelease, device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return release_primary(real()->cuDevicePrimaryCtxRelease_v2, device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    if (process_serving())
        context_forget_primary(device);
    return real()->cuDevicePrimaryCtxReset(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    if (process_serving())
        context_forget_primary(device);
    return real()->cuDevicePrimaryCtxReset_v2(device);
}

/* A function that begins a capture on `stream`. */
#define BEGIN(name, per_thread, parameters, arguments)                                             \
    CUresult name parameters                                                                       \
    {                                                                                              \
        if (!process_serving())                                                                    \
            return real()->name arguments;                                                         \
        capture_before_begin();                                                                    \
        CUresult result = real()->name arguments;                                                  \
        capture_after_begin(stream, per_thread, result);                                           \
        return result;                                                                             \
    }
#define TO_GRAPH                                                                                   \
    (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,       \
     size_t n, CUstreamCaptureMode mode)

BEGIN(cuStreamBeginCapture, 0, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_ptsz, 1, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_v2, 0, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN(cuStreamBeginCapture_v2_ptsz, 1, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN(cuStreamBeginCaptureToGraph, 0, TO_GRAPH, (stream, graph, nodes, edges, n, mode))
BEGIN(cuStreamBeginCaptureToGraph_ptsz, 1, TO_GRAPH, (stream, graph, nodes, edges, n, mode))

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CUresult result = real()->cuStreamEndCapture(stream, graph);
    if (process_serving())
        capture_after_end(stream, 0, 0);
    return result;
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    CUresult result = real()->cuStreamEndCapture_ptsz(stream, graph);
    if (process_serving())
        capture_after_end(stream, 1, 0);
    return result;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUresult result = real()->cuStreamDestroy_v2(stream);
    if (process_serving() && result == CUDA_SUCCESS)
        capture_after_end(stream, 0, 1);
    return result;
}
