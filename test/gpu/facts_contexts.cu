// Which contexts an event of the context speaks for (green contexts, a second context, another device), and what is allowed
// while a stream is captured.
#include "facts.cuh"
#include <cstring>

static u64 *times;

// How long until an event recorded for `context` is complete, with 20 ms of work just submitted; -code where it fails.
static double event_of_context(CUcontext context)
{
    CUevent event;
    MUST(cuCtxPushCurrent(context));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxPopCurrent(nullptr));
    auto begin = std::chrono::steady_clock::now();
    CUresult result = cuCtxRecordEvent(context, event);
    if (result == CUDA_SUCCESS)
        result = cuEventSynchronize(event);
    double found = result ? -(double)result : us_since(begin);
    cuEventDestroy(event);
    return found;
}

static double ms_of(const std::function<int()> &call, int *code)
{
    auto begin = std::chrono::steady_clock::now();
    *code = call();
    return us_since(begin) / 1000;
}

// With 20 ms on `busy`: context events, frees and synchronisations of both kinds.
static void green_facts(const char *name, CUstream busy, CUcontext primary, CUcontext green, CUgreenCtx handle)
{
    CUdeviceptr block;
    CUevent event;
    int code, freed;
    auto go = [&] { launch(busy, 20 * MS, times); };
    go();
    fact("green", "20 ms on %s: cuCtxRecordEvent(primary) complete after %.0f us (negative: error)", name,
         event_of_context(primary));
    MUST(cudaDeviceSynchronize());
    MUST(cuStreamSynchronize(busy));
    go();
    fact("green", "20 ms on %s: cuCtxRecordEvent(green as context) complete after %.0f us", name, event_of_context(green));
    MUST(cuStreamSynchronize(busy));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    go();
    double ms = ms_of([&] { int r = cuGreenCtxRecordEvent(handle, event); return r ? r : (int)cuEventSynchronize(event); }, &code);
    fact("green", "20 ms on %s: cuGreenCtxRecordEvent: code %d, complete after %.3f ms", name, code, ms);
    MUST(cuStreamSynchronize(busy));
    go();
    ms = ms_of([] { return cuCtxSynchronize(); }, &code);
    fact("green", "20 ms on %s: cuCtxSynchronize (primary current): code %d, %.3f ms", name, code, ms);
    MUST(cuStreamSynchronize(busy));
    MUST(cuMemAlloc(&block, 4096));
    go();
    ms = ms_of([&] { return cuMemFree(block); }, &freed);
    fact("green", "20 ms on %s: cuMemFree of a block of the primary context: code %d, %.3f ms", name, freed, ms);
    MUST(cuStreamSynchronize(busy));
    MUST(cuEventDestroy(event));
}

static void green()
{
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx handle;
    CUcontext primary, context = nullptr, found = nullptr;
    CUstream stream, plain = stream_of(cudaStreamNonBlocking);
    CUdeviceptr block = 0;
    unsigned groups = 1;
    unsigned long long id[3] = {};
    MUST(cuCtxGetCurrent(&primary));
    int code = cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM);
    code = code ? code : (int)cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 16);
    code = code ? code : (int)cuDevResourceGenerateDesc(&description, &part, 1);
    code = code ? code : (int)cuGreenCtxCreate(&handle, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    code = code ? code : (int)cuGreenCtxStreamCreate(&stream, handle, CU_STREAM_NON_BLOCKING, 0);
    code = code ? code : (int)cuCtxFromGreenCtx(&context, handle);
    if (code) {
        fact("green", "no green context: code %d", code);
        return;
    }
    cuCtxGetId(primary, &id[0]);
    cuCtxGetId(context, &id[1]);
    int of_stream = cuStreamGetCtx(stream, &found);
    cuCtxGetId(found, &id[2]);
    fact("green", "handles: primary %p id %llu, green as context %p id %llu; cuStreamGetCtx of its stream: code %d, %p id %llu",
         primary, id[0], context, id[1], of_stream, found, id[2]);
    green_facts("the green context's stream", stream, primary, context, handle);
    green_facts("a stream of the primary context", plain, primary, context, handle);
    MUST(cuCtxSetCurrent(context));
    code = cuMemAlloc(&block, 4096);
    fact("green", "with the green context current: cuMemAlloc gives %d", code);
    int freed = 0;
    launch(plain, 20 * MS, times);
    double ms = ms_of([&] { return cuMemFree(block); }, &freed);
    fact("green", "its cuMemFree with 20 ms on a stream of the primary context: code %d, %.3f ms", freed, ms);
    cuMemAlloc(&block, 4096);
    launch(stream, 20 * MS, times);
    ms = ms_of([&] { return cuMemFree(block); }, &freed);
    fact("green", "its cuMemFree with 20 ms on its own stream: code %d, %.3f ms", freed, ms);
    launch(cudaStreamLegacy, 20 * MS, times);
    fact("green", "legacy stream launched with it current: cuCtxRecordEvent(primary) complete after %.0f us", event_of_context(primary));
    MUST(cudaDeviceSynchronize());
    MUST(cuCtxSetCurrent(primary));
    MUST(cudaDeviceSynchronize());
    MUST(cuStreamDestroy(stream));
    MUST(cuStreamDestroy(plain));
    MUST(cuGreenCtxDestroy(handle));
}

// Does a stream of `mine` accept an event of `theirs`, and wait for it?
static void other_context(const char *name, CUcontext mine, CUcontext theirs, u64 *their_times)
{
    CUstream stream, busy;
    CUevent event;
    MUST(cuCtxSetCurrent(theirs));
    MUST(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    launch(busy, 1000, their_times);
    MUST(cuCtxSynchronize());
    launch(busy, 20 * MS, their_times);
    int recorded = cuCtxRecordEvent(theirs, event);
    MUST(cuCtxSetCurrent(mine));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    int queried = cuEventQuery(event);
    int waits = cuStreamWaitEvent(stream, event, 0);
    int code;
    double ms = ms_of([&] { return cuStreamSynchronize(stream); }, &code);
    fact("other context", "%s: its context event recorded %d, queried from ours %d, cuStreamWaitEvent on our stream %d, "
         "waited %.3f ms (code %d)", name, recorded, queried, waits, ms, code);
    fact("other context", "%s: cuCtxRecordEvent(ours, its event): %d", name, (int)cuCtxRecordEvent(mine, event));
    fact("other context", "%s: cuEventRecord(its event, our stream): %d", name, (int)cuEventRecord(event, stream));
    MUST(cuStreamDestroy(stream));
    MUST(cuCtxSetCurrent(theirs));
    MUST(cuCtxSynchronize());
    MUST(cuStreamDestroy(busy));
    MUST(cuEventDestroy(event));
    MUST(cuCtxSetCurrent(mine));
}

void facts_of_contexts()
{
    CUcontext primary, second = nullptr;
    u64 *theirs = nullptr;
    int devices = 0;
    MUST(cudaMalloc(&times, 4096));
    MUST(cuCtxGetCurrent(&primary));
    green();
    if (cuCtxCreate(&second, nullptr, 0, 0) == CUDA_SUCCESS) {
        MUST(cudaMalloc(&theirs, 4096));
        other_context("a second context of the device", primary, second, theirs);
        MUST(cuCtxDestroy(second));
        MUST(cuCtxSetCurrent(primary));
    }
    MUST(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        CUcontext peer;
        MUST(cudaSetDevice(1));
        MUST(cudaMalloc(&theirs, 4096));
        MUST(cuCtxGetCurrent(&peer));
        other_context("another device", primary, peer, theirs);
        MUST(cudaSetDevice(0));
    } else {
        fact("other context", "another device: only one here");
    }
    MUST(cudaFree(times));
}

// One call while `stream` is captured in `mode`, perhaps with this thread relaxed: its code, and how the capture ends.
static void during(const char *mode_name, cudaStreamCaptureMode mode, bool relaxed, const char *name,
                   const std::function<int()> &call)
{
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    cudaGraph_t graph = nullptr;
    cudaStreamCaptureMode ours = cudaStreamCaptureModeRelaxed;
    MUST(cudaStreamBeginCapture(stream, mode));
    launch(stream, 1000, times);
    if (relaxed)
        MUST(cudaThreadExchangeStreamCaptureMode(&ours));
    int code = call();
    if (relaxed)
        MUST(cudaThreadExchangeStreamCaptureMode(&ours));
    cudaError_t end = cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    fact("capture", "%s%s: %s gives %d, the capture ends with %d", mode_name, relaxed ? ", thread relaxed" : "", name, code,
         (int)end);
    if (graph)
        cudaGraphDestroy(graph);
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamDestroy(stream));
}

void facts_of_captures()
{
    CUcontext context;
    cudaStream_t other = stream_of(cudaStreamNonBlocking), blocking = stream_of(cudaStreamDefault);
    cudaEvent_t passed = event_of(), fresh = event_of();
    CUstreamCaptureStatus status;
    MUST(cudaMalloc(&times, 4096));
    MUST(cuCtxGetCurrent(&context));
    struct {
        const char *name;
        cudaStreamCaptureMode mode;
    } modes[] = {{"global", cudaStreamCaptureModeGlobal},
                 {"thread-local", cudaStreamCaptureModeThreadLocal},
                 {"relaxed", cudaStreamCaptureModeRelaxed}};
    for (auto &mode : modes)
        for (bool relaxed : {false, true}) {
            auto say = [&](const char *name, const std::function<int()> &call) {
                MUST(cuCtxRecordEvent(context, passed));
                MUST(cudaDeviceSynchronize());
                during(mode.name, mode.mode, relaxed, name, call);
            };
            say("cuEventQuery of a passed context event", [&] { return (int)cuEventQuery(passed); });
            say("cuStreamWaitEvent of it on a non-blocking stream", [&] { return (int)cuStreamWaitEvent(other, passed, 0); });
            say("cuStreamWaitEvent of it on a blocking stream", [&] { return (int)cuStreamWaitEvent(blocking, passed, 0); });
            say("cuStreamWaitEvent of it on the per-thread stream",
                [&] { return (int)cuStreamWaitEvent(CU_STREAM_PER_THREAD, passed, 0); });
            say("cuStreamWaitEvent of it on the legacy stream",
                [&] { return (int)cuStreamWaitEvent(CU_STREAM_LEGACY, passed, 0); });
            say("cuEventRecord on another stream", [&] { return (int)cuEventRecord(fresh, other); });
            say("cuCtxRecordEvent", [&] { return (int)cuCtxRecordEvent(context, fresh); });
            say("cuEventSynchronize of a passed event", [&] { return (int)cuEventSynchronize(passed); });
            say("cuStreamIsCapturing of another stream", [&] { return (int)cuStreamIsCapturing(other, &status); });
            say("cuStreamIsCapturing of the legacy stream", [&] { return (int)cuStreamIsCapturing(CU_STREAM_LEGACY, &status); });
            say("cuStreamQuery of another stream", [&] { return (int)cuStreamQuery(other); });
            say("a launch on another stream", [&] { return (launch(other, 1000, times + 8), (int)cudaPeekAtLastError()); });
        }
    MUST(cudaStreamDestroy(other));
    MUST(cudaStreamDestroy(blocking));
    MUST(cudaFree(times));
}
