/*
 * Streams, events, captures and graphs of the runtime.
 */
#include "calls.h"

CALL(cudaStreamCreate, (cudaStream_t * stream), d->cuStreamCreateWithPriority(stream, 0, 0))
CALL(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags),
     d->cuStreamCreateWithPriority(stream, flags, 0))
CALL(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority),
     d->cuStreamCreateWithPriority(stream, flags, priority))
CALL(cudaStreamDestroy, (cudaStream_t stream), d->cuStreamDestroy(stream))
CALL_TWIN(cudaStreamSynchronize, _ptsz, (cudaStream_t stream), d->cuStreamSynchronize(stream))
CALL_TWIN(cudaStreamQuery, _ptsz, (cudaStream_t stream), d->cuStreamQuery(stream))
CALL_TWIN(cudaStreamWaitEvent, _ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
          d->cuStreamWaitEvent(stream, event, flags))
CALL_TWIN(cudaStreamGetFlags, _ptsz, (cudaStream_t stream, unsigned *flags),
          d->cuStreamGetFlags(stream, flags))
CALL_TWIN(cudaStreamGetPriority, _ptsz, (cudaStream_t stream, int *priority),
          d->cuStreamGetPriority(stream, priority))
CALL_TWIN(cudaStreamGetId, _ptsz, (cudaStream_t stream, unsigned long long *id),
          d->cuStreamGetId(stream, id))
CALL_TWIN(cudaStreamGetDevice, _ptsz, (cudaStream_t stream, int *device),
          d->cuStreamGetDevice(stream, device))
CALL_TWIN(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
          d->cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode))
CALL_TWIN(cudaStreamBeginCaptureToGraph, _ptsz,
          (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *nodes,
           const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode),
          d->cuStreamBeginCaptureToGraph(stream, graph, nodes, (const CUgraphEdgeData *)edges,
                                         count, (CUstreamCaptureMode)mode))
CALL_TWIN(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t *graph),
          d->cuStreamEndCapture(stream, graph))
CALL_TWIN(cudaStreamIsCapturing, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
          d->cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status))
CALL_TWIN(cudaStreamGetCaptureInfo, _ptsz,
          (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
           cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
           size_t *count),
          d->cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id,
                                    graph, nodes, (const CUgraphEdgeData **)edges, count))
CALL(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode),
     d->cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode))

CALL(cudaEventCreate, (cudaEvent_t * event), d->cuEventCreate(event, 0))
CALL(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags),
     d->cuEventCreate(event, flags))
CALL_TWIN(cudaEventRecord, _ptsz, (cudaEvent_t event, cudaStream_t stream),
          d->cuEventRecord(event, stream))
CALL_TWIN(cudaEventRecordWithFlags, _ptsz, (cudaEvent_t event, cudaStream_t stream, unsigned flags),
          d->cuEventRecordWithFlags(event, stream, flags))
CALL(cudaEventQuery, (cudaEvent_t event), d->cuEventQuery(event))
CALL(cudaEventSynchronize, (cudaEvent_t event), d->cuEventSynchronize(event))
CALL(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t start, cudaEvent_t end),
     d->cuEventElapsedTime(milliseconds, start, end))
CALL(cudaEventDestroy, (cudaEvent_t event), d->cuEventDestroy(event))

/* The driver of 11.2 has no such function, though the runtime's name is older. */
static CUresult instantiate(const struct runtime_driver *d, cudaGraphExec_t *executable,
                            cudaGraph_t graph, unsigned long long flags)
{
    return d->cuGraphInstantiateWithFlags ? d->cuGraphInstantiateWithFlags(executable, graph, flags)
                                          : CUDA_ERROR_NOT_SUPPORTED;
}

CALL(cudaGraphCreate, (cudaGraph_t * graph, unsigned flags), d->cuGraphCreate(graph, flags))
CALL(cudaGraphInstantiate,
     (cudaGraphExec_t * executable, cudaGraph_t graph, unsigned long long flags),
     instantiate(d, executable, graph, flags))
CALL(cudaGraphInstantiateWithFlags,
     (cudaGraphExec_t * executable, cudaGraph_t graph, unsigned long long flags),
     instantiate(d, executable, graph, flags))
CALL_TWIN(cudaGraphLaunch, _ptsz, (cudaGraphExec_t executable, cudaStream_t stream),
          d->cuGraphLaunch(executable, stream))
CALL_TWIN(cudaGraphUpload, _ptsz, (cudaGraphExec_t executable, cudaStream_t stream),
          d->cuGraphUpload(executable, stream))
CALL(cudaGraphDestroy, (cudaGraph_t graph), d->cuGraphDestroy(graph))
CALL(cudaGraphExecDestroy, (cudaGraphExec_t executable), d->cuGraphExecDestroy(executable))
CALL(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
     d->cuGraphGetNodes(graph, nodes, count))
CALL_TWIN(cudaLaunchHostFunc, _ptsz, (cudaStream_t stream, cudaHostFn_t function, void *data),
          d->cuLaunchHostFunc(stream, function, data))
