#include "stream.h"

#include "call.h"
#include "capture.h"
#include "context.h"

#include <stdlib.h>

static struct sim_stream *spare;
static unsigned long long last_id;

/* A destroyed handle is the next one handed out, as programs may meet it. */
struct sim_stream *stream_new(struct sim_context *context, unsigned flags, int priority)
{
    struct sim_stream *stream = spare;
    if (stream)
        spare = stream->next;
    else
        stream = malloc(sizeof(*stream));
    if (!stream)
        abort();
    *stream = (struct sim_stream){.context = context, .flags = flags, .priority = priority};
    stream->alive = 1;
    stream->id = ++last_id;
    enum sim_queue_kind kind = flags & CU_STREAM_NON_BLOCKING ? QUEUE_FREE : QUEUE_BLOCKING;
    stream->queue = queue_new(kind, context, stream);
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

void stream_end(struct sim_stream *stream)
{
    struct sim_stream **link = &stream->context->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    capture_leave(stream);
    queue_drop(stream->queue);
    free(stream->beside_clock.at);
    stream->alive = 0;
    stream->next = spare;
    spare = stream;
}

void streams_end_context(struct sim_context *context)
{
    while (context->streams)
        stream_end(context->streams);
    context->legacy = NULL;
}

static struct sim_stream *stream_of_thread(struct sim_context *context)
{
    struct sim_thread *thread = thread_self();
    struct sim_stream *stream = context->streams;
    while (stream && stream->thread != thread)
        stream = stream->next;
    if (!stream) {
        stream = stream_new(context, 0, 0);
        stream->thread = thread;
        thread->own_streams = 1;
    }
    return stream;
}

struct sim_stream *stream_from(CUstream handle, CUresult *why)
{
    int per_thread = handle == CU_STREAM_PER_THREAD || (!handle && thread_self()->per_thread);
    if (!handle || handle == CU_STREAM_LEGACY || per_thread) {
        struct sim_context *context = context_current(why);
        if (!context)
            return NULL;
        return per_thread ? stream_of_thread(context) : context->legacy;
    }
    struct sim_stream *stream = (struct sim_stream *)handle;
    if (stream->alive)
        return stream;
    *why = CUDA_ERROR_INVALID_HANDLE;
    return NULL;
}

CUresult stream_submit(struct sim_stream *stream, struct sim_work *work, struct sim_point *point)
{
    if (stream->capture)
        return capture_add(stream, work);
    if (stream == stream->context->legacy) {
        CUresult result = capture_implicit(stream->context, 1);
        if (result) {
            work_dispose(work);
            return result;
        }
    }
    struct sim_point submitted = engine_submit(stream->queue, work, NULL, NULL);
    if (point)
        *point = submitted;
    return CUDA_SUCCESS;
}

CUresult do_cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    CUresult why;
    struct sim_context *context = context_current(&why);
    if (!context)
        return why;
    if (!out || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUstream)stream_new(context, flags, priority);
    return CUDA_SUCCESS;
}

CUresult do_cuStreamCreate(CUstream *out, unsigned flags)
{
    return do_cuStreamCreateWithPriority(out, flags, 0);
}

/* Returns at once; outstanding work goes on under the queue it was put on. */
CUresult do_cuStreamDestroy_v2(CUstream handle)
{
    CUresult why;
    struct sim_stream *stream = stream_from(handle, &why);
    if (!stream)
        return why;
    if (stream == stream->context->legacy || stream->thread)
        return CUDA_ERROR_INVALID_HANDLE;
    stream_end(stream);
    return CUDA_SUCCESS;
}

CUresult do_cuStreamSynchronize(CUstream handle)
{
    CUresult result;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (stream->capture) {
        stream->capture->invalid = 1;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (stream == stream->context->legacy && capture_implicit(stream->context, 1))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    result = capture_unsafe();
    if (result)
        return result;
    if (stream == stream->context->legacy) {
        struct sim_work work = {.kind = WORK_MARK, .call = "cuStreamSynchronize"};
        engine_wait(engine_submit(stream->queue, &work, NULL, NULL));
    } else if (stream->queue->head) {
        engine_wait((struct sim_point){stream->queue->slot, stream->queue->tail->number});
    }
    return CUDA_SUCCESS;
}

CUresult do_cuStreamQuery(CUstream handle)
{
    CUresult result;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (stream->capture) {
        stream->capture->invalid = 1;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    result = capture_unsafe();
    if (result)
        return result;
    engine_run();
    if (stream->queue->head)
        return CUDA_ERROR_NOT_READY;
    if (stream != stream->context->legacy)
        return CUDA_SUCCESS;
    for (struct sim_queue *queue = engine_active(); queue; queue = queue->next)
        if (queue->context == stream->context && queue->kind == QUEUE_BLOCKING)
            return CUDA_ERROR_NOT_READY;
    return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCtx(CUstream handle, CUcontext *out)
{
    CUresult why;
    struct sim_stream *stream = stream_from(handle, &why);
    if (!stream || !out)
        return stream ? CUDA_ERROR_INVALID_VALUE : why;
    *out = (CUcontext)stream->context;
    return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCtx_v2(CUstream handle, CUcontext *out, CUgreenCtx *green)
{
    if (green)
        *green = NULL;
    return do_cuStreamGetCtx(handle, out);
}

#define STREAM_GETTER(name, type, value)                                                           \
    CUresult do_##name(CUstream handle, type *out)                                                 \
    {                                                                                              \
        CUresult why;                                                                              \
        struct sim_stream *stream = stream_from(handle, &why);                                     \
        if (!stream || !out)                                                                       \
            return stream ? CUDA_ERROR_INVALID_VALUE : why;                                        \
        *out = value;                                                                              \
        return CUDA_SUCCESS;                                                                       \
    }
STREAM_GETTER(cuStreamGetFlags, unsigned, stream->flags)
STREAM_GETTER(cuStreamGetPriority, int, stream->priority)
STREAM_GETTER(cuStreamGetId, unsigned long long, stream->id)
STREAM_GETTER(cuStreamGetDevice, CUdevice, stream->context->device)
#undef STREAM_GETTER
