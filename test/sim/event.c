#include "call.h"
#include "capture.h"
#include "check.h"
#include "context.h"
#include "sim.h"

#include <stdlib.h>

static struct sim_event *spare, *every;

static _Atomic int ended_allowed;

void cachalot_sim_allow_ended_events(void)
{
    ended_allowed = 1;
}

/* Of a context that has ended: undefined with CUDA (cuCtxDestroy, cuDevicePrimaryCtxRelease). */
struct sim_event *event_from(CUevent handle)
{
    struct sim_event *event = (struct sim_event *)handle;
    if (event && event->alive && !ended_allowed &&
        (!event->context->alive || event->context_id != event->context->id))
        check_failed("an event is used after its context has ended");
    return event && event->alive ? event : NULL;
}

/* A mark of an earlier recording says nothing about the present one. */
void event_finish(struct sim_event *event, uint64_t turn, uint64_t time)
{
    if (event->turn == turn)
        event->time = time;
}

void event_point(struct sim_event *event, struct sim_point point, const struct sim_clock *clock)
{
    event->point = point;
    event->clock.count = 0;
    clock_merge(&event->clock, clock);
}

static void event_begin_record(struct sim_event *event)
{
    event->turn++;
    event->time = 0;
    event->recorded = 1;
    event->capture_id = 0;
}

CUresult do_cuEventCreate(CUevent *out, unsigned flags)
{
    CUresult why;
    struct sim_context *context = context_current(&why);
    if (!context)
        return why;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_event *event = spare;
    if (event) {
        spare = event->next;
    } else {
        event = calloc(1, sizeof(*event));
        if (!event)
            abort();
        event->every = every;
        every = event;
    }
    event->context = context;
    event->context_id = context->id;
    event->flags = flags;
    event->alive = 1;
    event->recorded = 0;
    event->capture_id = 0;
    event->point = (struct sim_point){0, 0};
    *out = (CUevent)event;
    return CUDA_SUCCESS;
}

CUresult do_cuEventDestroy_v2(CUevent handle)
{
    struct sim_event *event = event_from(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    event->turn++;
    event->alive = 0;
    event->next = spare;
    spare = event;
    return CUDA_SUCCESS;
}

CUresult do_cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags)
{
    (void)flags;
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(stream_handle, &result);
    struct sim_event *event = event_from(handle);
    if (!stream || !event)
        return stream ? CUDA_ERROR_INVALID_HANDLE : result;
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
        if (stream->capture->invalid)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        event->recorded = 1;
        capture_record_event(stream, event);
        return CUDA_SUCCESS;
    }
    if (stream == stream->context->legacy)
        result = capture_implicit(stream->context, 1);
    if (result)
        return result;
    event_begin_record(event);
    struct sim_work work = {
        .kind = WORK_MARK, .call = "cuEventRecord", .event = event, .event_turn = event->turn};
    event_point(event, engine_submit(stream->queue, &work, NULL, NULL), &stream->queue->clock);
    return CUDA_SUCCESS;
}

CUresult do_cuEventRecord(CUevent event, CUstream stream)
{
    return do_cuEventRecordWithFlags(event, stream, 0);
}

CUresult do_cuCtxRecordEvent(CUcontext handle, CUevent event_handle)
{
    struct sim_context *context = context_from(handle);
    CUresult result = CUDA_SUCCESS;
    if (!handle)
        context = context_current(&result);
    if (!context)
        return result ? result : CUDA_ERROR_INVALID_CONTEXT;
    struct sim_event *event = event_from(event_handle);
    if (!event || event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    result = capture_forbids_context(context);
    if (result)
        return result;
    event_begin_record(event);
    event_point(event, context_mark(context, event), &context->marks->clock);
    return CUDA_SUCCESS;
}

static void queue_wait_event(struct sim_queue *queue, struct sim_event *event)
{
    struct sim_work work = {.kind = WORK_WAIT, .call = "cuStreamWaitEvent"};
    engine_submit(queue, &work, &event->point, &event->clock);
}

CUresult do_cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags)
{
    (void)flags;
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(stream_handle, &result);
    struct sim_event *event = event_from(handle);
    if (!stream || !event)
        return stream ? CUDA_ERROR_INVALID_HANDLE : result;
    if (stream->capture || event->capture_id)
        return capture_wait_event(stream, event);
    if (stream == stream->context->legacy)
        result = capture_implicit(stream->context, 1);
    if (!result && event->recorded && !engine_passed(event->point))
        queue_wait_event(stream->queue, event);
    return result;
}

CUresult do_cuCtxWaitEvent(CUcontext handle, CUevent event_handle)
{
    struct sim_context *context = context_from(handle);
    struct sim_event *event = event_from(event_handle);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = capture_forbids_context(context);
    if (result)
        return result;
    for (struct sim_stream *stream = context->streams; stream; stream = stream->next)
        if (event->recorded && !engine_passed(event->point))
            queue_wait_event(stream->queue, event);
    return CUDA_SUCCESS;
}

/* Common to everything that asks how far an event is. */
static CUresult event_ask(struct sim_event *event)
{
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = capture_unsafe();
    if (event->capture_id && capture_is_active(event->capture_id))
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!result)
        engine_run();
    return result;
}

CUresult do_cuEventQuery(CUevent handle)
{
    struct sim_event *event = event_from(handle);
    CUresult result = event_ask(event);
    if (result)
        return result;
    return engine_passed(event->point) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult do_cuEventSynchronize(CUevent handle)
{
    struct sim_event *event = event_from(handle);
    CUresult result = event_ask(event);
    if (!result)
        engine_wait(event->point);
    return result;
}

CUresult do_cuEventElapsedTime_v2(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    struct sim_event *start = event_from(start_handle), *end = event_from(end_handle);
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start || !end || !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    engine_run();
    if (!engine_passed(start->point) || !engine_passed(end->point))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(end->time - start->time) / 1e6);
    return CUDA_SUCCESS;
}

void streams_end_thread(struct sim_thread *thread)
{
    if (!thread->own_streams)
        return;
    for (struct sim_context *context = context_first(); context; context = context->next) {
        struct sim_stream *stream = context->streams;
        while (stream) {
            struct sim_stream *next = stream->next;
            if (stream->thread == thread)
                stream_end(stream);
            stream = next;
        }
    }
}
