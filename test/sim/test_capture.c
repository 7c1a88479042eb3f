/*
 * Stream captures: what they record, what they forbid, and the graphs they become.
 */
#include "test_case.h"

#include <pthread.h>

#define UNSUPPORTED CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
#define INVALIDATED CUDA_ERROR_STREAM_CAPTURE_INVALIDATED

static CUgraph graph;

static void capture(CUstream stream, CUstreamCaptureMode mode)
{
    OK(cuStreamBeginCapture(stream, mode));
}

static CUgraphExec executable(void)
{
    CUgraphExec result;
    OK(cuGraphInstantiateWithFlags(&result, graph, 0));
    return result;
}

static void capture_is_replayed(void)
{
    unsigned char byte = 0;
    size_t count = 0;
    begin();
    OK(cuMemsetD8(memory, 1, 100));
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemsetD8Async(memory, 2, 100, a));
    OK(cuMemcpyDtoDAsync(memory + 4096, memory, 100, a));
    GIVES(1, cachalot_sim_captures());
    OK(cuStreamEndCapture(a, &graph));
    GIVES(0, cachalot_sim_captures());
    OK(cuGraphGetNodes(graph, NULL, &count));
    GIVES(2, count);
    OK(cuMemcpyDtoH(&byte, memory, 1));
    GIVES(1, byte);
    OK(cuGraphLaunch(executable(), b));
    OK(cuStreamSynchronize(b));
    OK(cuMemcpyDtoH(&byte, memory + 4099, 1));
    GIVES(2, byte);
}

static void captured_work_is_no_work(void)
{
    begin();
    capture(a, CU_STREAM_CAPTURE_MODE_RELAXED);
    launch(a, 1000, &write_it);
    launch(b, 1000, &write_it);
    GIVES(1, cachalot_sim_unfinished());
    OK(cuStreamEndCapture(a, &graph));
}

static void a_launched_graph_is_work(void)
{
    begin();
    capture(a, CU_STREAM_CAPTURE_MODE_RELAXED);
    launch(a, 1000, &write_it);
    OK(cuStreamEndCapture(a, &graph));
    OK(cuGraphLaunch(executable(), a));
    launch(b, 1000, &write_it);
}

static void other_streams_join(void)
{
    begin();
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUevent fork = event_after(a);
    OK(cuStreamWaitEvent(b, fork, 0));
    launch(b, 1000, &write_it);
    OK(cuStreamWaitEvent(a, event_after(b), 0));
    OK(cuStreamEndCapture(a, &graph));
    GIVES(0, cachalot_sim_unfinished());
    launch(b, 1, NULL);
    GIVES(1, cachalot_sim_unfinished());
}

static void streams_left_behind_are_an_error(void)
{
    begin();
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamWaitEvent(b, event_after(a), 0));
    launch(b, 1000, &write_it);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));
    CHECK(graph == NULL);
}

static void end_is_invalidated(void)
{
    GIVES(INVALIDATED, cuStreamEndCapture(a, &graph));
    CHECK(graph == NULL);
}

static void unsafe_calls_invalidate(void)
{
    CUdeviceptr address;
    begin();
    CUevent event = event_after(b);
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(UNSUPPORTED, cuMemAlloc(&address, 1));
    end_is_invalidated();
    capture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    GIVES(UNSUPPORTED, cuMemFree(memory));
    end_is_invalidated();
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(UNSUPPORTED, cuEventQuery(event));
    end_is_invalidated();
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(UNSUPPORTED, cuStreamSynchronize(a));
    end_is_invalidated();
}

static void relaxed_mode_relaxes(void)
{
    CUdeviceptr address;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    begin();
    capture(a, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemAlloc(&address, 1));
    OK(cuMemFree(address));
    OK(cuStreamEndCapture(a, &graph));
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    GIVES(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    OK(cuMemAlloc(&address, 1));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    GIVES(CU_STREAM_CAPTURE_MODE_RELAXED, mode);
    OK(cuStreamEndCapture(a, &graph));
}

static void context_calls_are_never_allowed(void)
{
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUevent event;
    begin();
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuThreadExchangeStreamCaptureMode(&relaxed));
    capture(a, CU_STREAM_CAPTURE_MODE_RELAXED);
    GIVES(UNSUPPORTED, cuCtxRecordEvent(context, event));
    end_is_invalidated();
    capture(a, CU_STREAM_CAPTURE_MODE_RELAXED);
    GIVES(UNSUPPORTED, cuCtxSynchronize());
    end_is_invalidated();
    capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    GIVES(UNSUPPORTED, cuStreamSynchronize(CU_STREAM_LEGACY));
    GIVES(INVALIDATED, cuStreamEndCapture(blocking, &graph));
}

static void legacy_is_implicit(void)
{
    CUstreamCaptureStatus status;
    begin();
    capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    OK(cuStreamIsCapturing(blocking, &status));
    GIVES(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cachalot_sim_launch(NULL, 1, NULL, 0));
    OK(cuStreamIsCapturing(blocking, &status));
    GIVES(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status);
    GIVES(INVALIDATED, cuStreamEndCapture(blocking, &graph));
}

static CUresult thread_result;

static void *allocate_in_thread(void *unused)
{
    CUdeviceptr address;
    OK(cuCtxSetCurrent(context));
    thread_result = cuMemAlloc(&address, 1);
    return unused;
}

static CUresult allocate_elsewhere(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, allocate_in_thread, NULL);
    pthread_join(thread, NULL);
    return thread_result;
}

static void modes_reach_other_threads(void)
{
    begin();
    capture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    OK(allocate_elsewhere());
    OK(cuStreamEndCapture(a, &graph));
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(UNSUPPORTED, allocate_elsewhere());
    end_is_invalidated();
}

static void destroying_ends_it(void)
{
    begin();
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamDestroy(a));
    GIVES(0, cachalot_sim_captures());
    CUdeviceptr address;
    OK(cuMemAlloc(&address, 1));
}

static void uncaptured_work_is_isolated(void)
{
    begin();
    CUevent event = event_after(b);
    capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(a, event, 0));
    end_is_invalidated();
}

static const struct test_case cases[] = {
    {"a capture is replayed", capture_is_replayed, NULL, NULL},
    {"captured work is no work", captured_work_is_no_work, MANUAL, NULL},
    {"a launched graph is work", a_launched_graph_is_work, MANUAL, "unordered"},
    {"other streams join", other_streams_join, MANUAL, NULL},
    {"streams left behind are an error", streams_left_behind_are_an_error, MANUAL, NULL},
    {"unsafe calls invalidate", unsafe_calls_invalidate, NULL, NULL},
    {"relaxed mode relaxes", relaxed_mode_relaxes, NULL, NULL},
    {"context calls are never allowed", context_calls_are_never_allowed, NULL, NULL},
    {"legacy is implicit", legacy_is_implicit, MANUAL, NULL},
    {"modes reach other threads", modes_reach_other_threads, NULL, NULL},
    {"destroying ends it", destroying_ends_it, NULL, NULL},
    {"uncaptured work is isolated", uncaptured_work_is_isolated, NULL, NULL},
};

int main(void)
{
    return test_run(cases, sizeof(cases) / sizeof(cases[0]));
}
