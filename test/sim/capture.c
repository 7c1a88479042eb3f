#include "capture.h"

#include "call.h"
#include "context.h"
#include "sim.h"

#include <stdlib.h>

static struct sim_capture *captures;
static unsigned long long last_id;

static void capture_invalidate(struct sim_capture *capture)
{
    capture->invalid = 1;
}

/* The rule of cuThreadExchangeStreamCaptureMode's documentation. */
static int capture_disturbed(const struct sim_capture *capture, const struct sim_thread *thread)
{
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
        thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return 0;
    if (capture->thread == thread)
        return 1;
    return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           thread->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        if (capture_disturbed(capture, thread_self())) {
            capture_invalidate(capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

CUresult capture_forbids_context(const struct sim_context *context)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        if (capture->members[0]->context == context) {
            capture_invalidate(capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

CUresult capture_implicit(const struct sim_context *context, int invalidate)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        for (int i = 0; i < capture->count; i++) {
            const struct sim_stream *member = capture->members[i];
            if (member->context != context || (member->flags & CU_STREAM_NON_BLOCKING))
                continue;
            if (invalidate)
                capture_invalidate(capture);
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return result;
}

CUresult capture_add(struct sim_stream *stream, struct sim_work *work)
{
    struct sim_capture *capture = stream->capture;
    if (capture->invalid) {
        work_dispose(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    stream->seen.at[stream->capture_index]++;
    graph_add(capture->graph, work);
    work_dispose(work);
    return CUDA_SUCCESS;
}

void capture_record_event(struct sim_stream *stream, struct sim_event *event)
{
    event->capture_id = stream->capture->id;
    event->seen = stream->seen;
}

static struct sim_capture *capture_by_id(unsigned long long id)
{
    struct sim_capture *capture = captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

int capture_is_active(unsigned long long id)
{
    return capture_by_id(id) != NULL;
}

static CUresult capture_join(struct sim_capture *capture, struct sim_stream *stream)
{
    if (capture->count == CAPTURE_STREAMS)
        return CUDA_ERROR_NOT_SUPPORTED;
    stream->capture = capture;
    stream->capture_index = capture->count;
    stream->seen = (struct capture_clock){{0}};
    capture->members[capture->count++] = stream;
    return CUDA_SUCCESS;
}

CUresult capture_wait_event(struct sim_stream *stream, struct sim_event *event)
{
    struct sim_capture *own = stream->capture, *capture = capture_by_id(event->capture_id);
    if (own && !capture) {
        if (!event->recorded)
            return CUDA_SUCCESS;
        capture_invalidate(own);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (own && own != capture) {
        capture_invalidate(own);
        capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    CUresult result = own ? CUDA_SUCCESS : capture_join(capture, stream);
    if (result)
        return result;
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        if (stream->seen.at[i] < event->seen.at[i])
            stream->seen.at[i] = event->seen.at[i];
    return CUDA_SUCCESS;
}

static void capture_free(struct sim_capture *capture)
{
    struct sim_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    for (int i = 0; i < capture->count; i++)
        capture->members[i]->capture = NULL;
    free(capture);
}

void capture_leave(struct sim_stream *stream)
{
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return;
    if (!capture->lent)
        graph_free(capture->graph);
    capture_free(capture);
}

void captures_end_thread(const struct sim_thread *thread)
{
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        if (capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
            capture->thread = NULL;
            capture_invalidate(capture);
        }
}

static CUresult capture_begin(CUstream handle, CUstreamCaptureMode mode, struct sim_graph *into)
{
    CUresult why;
    struct sim_stream *stream = stream_from(handle, &why);
    if (!stream)
        return why;
    if (stream == stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *capture = calloc(1, sizeof(*capture));
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->mode = mode;
    capture->thread = thread_self();
    capture->lent = into != NULL;
    capture->graph = into ? into : graph_new();
    capture->id = ++last_id;
    capture->next = captures;
    captures = capture;
    return capture_join(capture, stream);
}

CUresult do_cuStreamBeginCapture(CUstream stream)
{
    return capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL);
}

CUresult do_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return capture_begin(stream, mode, NULL);
}

CUresult do_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                        const CUgraphEdgeData *edges, size_t count,
                                        CUstreamCaptureMode mode)
{
    (void)nodes, (void)edges, (void)count;
    return graph ? capture_begin(stream, mode, (struct sim_graph *)graph)
                 : CUDA_ERROR_INVALID_VALUE;
}

static int capture_is_joined(const struct sim_capture *capture)
{
    const struct sim_stream *origin = capture->members[0];
    for (int i = 1; i < capture->count; i++)
        if (origin->seen.at[i] < capture->members[i]->seen.at[i])
            return 0;
    return 1;
}

CUresult do_cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->members[0] != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_self())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!capture_is_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (result == CUDA_SUCCESS)
        *graph = (CUgraph)capture->graph;
    else if (!capture->lent)
        graph_free(capture->graph);
    capture_free(capture);
    return result;
}

static CUresult capture_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                             CUgraph *graph)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == stream->context->legacy)
        result = capture_implicit(stream->context, 0);
    struct sim_capture *capture = stream->capture;
    *status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (capture && !capture->invalid && id)
        *id = capture->id;
    if (capture && !capture->invalid && graph)
        *graph = (CUgraph)capture->graph;
    return result;
}

CUresult do_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return capture_info(stream, status, NULL, NULL);
}

CUresult do_cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return capture_info(stream, status, id, NULL);
}

/* Nodes have no handles here: no dependencies are ever named. */
CUresult do_cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
                                      cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                      size_t *count)
{
    if (nodes)
        *nodes = NULL;
    if (count)
        *count = 0;
    return capture_info(stream, status, id, graph);
}

CUresult do_cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
                                      cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                      const CUgraphEdgeData **edges, size_t *count)
{
    if (edges)
        *edges = NULL;
    return do_cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
}

CUresult do_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_thread *thread = thread_self();
    CUstreamCaptureMode before = thread->capture_mode;
    thread->capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

size_t cachalot_sim_captures(void)
{
    size_t count = 0;
    engine_lock();
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        count++;
    engine_unlock();
    return count;
}
