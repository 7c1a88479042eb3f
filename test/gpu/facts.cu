// What the driver does that the rule of reuse leans on, and what its calls cost. Native; one JSON line per fact.
// usage: facts [order programmatic captures contexts costs maps ipc]; exit 1 if something failed that should not.
#include "facts.cuh"
#include <csignal>
#include <cstring>
#include <unistd.h>

int failures;
static u64 *times; // of the kernels, two each

static u64 at(int index)
{
    u64 value = 0;
    MUST(cudaMemcpy(&value, times + index, 8, cudaMemcpyDeviceToHost));
    return value;
}

static double ms_between(int from, int to)
{
    return ((double)at(to) - (double)at(from)) / 1e6;
}

// A stands for the work before a free, E is recorded behind it, B comes after: whoever waits for E waits for A and not for B.
static void event_stands_for(const char *name, cudaStream_t lane, cudaStream_t joins)
{
    CUevent event;
    CUcontext context;
    MUST(cuCtxGetCurrent(&context));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cudaMemset(times, 0, 256));
    MUST(cudaDeviceSynchronize());
    launch(lane, 5 * MS, times);
    MUST(cuCtxRecordEvent(context, event));
    launch(lane, 20 * MS, times + 2);
    MUST(cuStreamWaitEvent(joins, event, 0));
    launch(joins, 1000, times + 4);
    MUST(cudaDeviceSynchronize());
    double after_a = ms_between(1, 4), before_b = ms_between(4, 3);
    fact("order", "%s: joined %.3f ms after the end of the work before the mark, %.3f ms before the end of the work after it%s",
         name, after_a, before_b, after_a < 0 ? " (WRONG: too early)" : before_b < 5 ? " (waits for later work)" : "");
    failures += after_a < 0;
    MUST(cuEventDestroy(event));
}

void facts_of_order()
{
    cudaStream_t blocking = stream_of(cudaStreamDefault), free1 = stream_of(cudaStreamNonBlocking);
    cudaStream_t free2 = stream_of(cudaStreamNonBlocking);
    event_stands_for("non-blocking, joined by non-blocking", free1, free2);
    event_stands_for("non-blocking, joined by legacy", free1, cudaStreamLegacy);
    event_stands_for("non-blocking, joined by per-thread", free1, cudaStreamPerThread);
    event_stands_for("legacy, joined by non-blocking", cudaStreamLegacy, free2);
    event_stands_for("per-thread, joined by non-blocking", cudaStreamPerThread, free2);
    event_stands_for("blocking, joined by non-blocking", blocking, free2);
    event_stands_for("legacy, joined by blocking (legacy itself orders the two)", cudaStreamLegacy, blocking);
    for (auto stream : {blocking, free1, free2})
        MUST(cudaStreamDestroy(stream));
}

// A runs for 10 ms and triggers at its begin; B is launched programmatically behind it, and something stands between.
static void between(const char *name, int trigger, const std::function<void(cudaStream_t)> &put)
{
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    MUST(cudaMemset(times, 0, 256));
    MUST(cudaDeviceSynchronize());
    launch(stream, 10 * MS, times, 0, trigger);
    put(stream);
    launch(stream, 1000, times + 2, 1);
    MUST(cudaDeviceSynchronize());
    double gap = ms_between(0, 2), over = ms_between(1, 2);
    fact("programmatic", "%s: B begins %.3f ms after A's begin, %.3f ms after A's end: %s", name, gap, over,
         over < 0 ? "beside A" : "after A");
    MUST(cudaStreamDestroy(stream));
}

// A (10 ms, triggers), B programmatic (short), then what comes behind B on the stream: is it after A too?
static void behind()
{
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    CUcontext context;
    cudaEvent_t own = event_of(), whole = event_of();
    MUST(cuCtxGetCurrent(&context));
    for (int programmatic = 0; programmatic < 2; programmatic++) {
        launch(stream, 10 * MS, times, 0, 1);
        launch(stream, 1000, times + 2, 1, 1);
        launch(stream, 1000, times + 4, programmatic, 0, programmatic);
        MUST(cudaDeviceSynchronize());
        fact("programmatic", "A, B programmatic, C %s: C begins %.3f ms after A's end",
             programmatic ? "programmatic that waits for its dependency" : "ordinary", ms_between(1, 4));
    }
    for (auto event : {own, whole}) {
        launch(stream, 10 * MS, times, 0, 1);
        launch(stream, 1000, times + 2, 1, 1);
        auto begin = std::chrono::steady_clock::now();
        MUST(event == own ? (int)cudaEventRecord(event, stream) : (int)cuCtxRecordEvent(context, event));
        MUST(cudaEventSynchronize(event));
        double waited = us_since(begin);
        MUST(cudaDeviceSynchronize());
        fact("programmatic", "A (10 ms), B programmatic and short, then %s: complete after %.0f us%s",
             event == own ? "cudaEventRecord" : "cuCtxRecordEvent", waited, waited < 9000 ? " (WRONG: A is not covered)" : "");
        failures += waited < 9000;
    }
    launch(stream, 10 * MS, times, 0, 1);
    launch(stream, 1000, times + 2, 1, 1);
    auto begin = std::chrono::steady_clock::now();
    MUST(cudaStreamSynchronize(stream));
    fact("programmatic", "the same, then cudaStreamSynchronize: %.0f us", us_since(begin));
    MUST(cudaStreamDestroy(stream));
    MUST(cudaEventDestroy(own));
    MUST(cudaEventDestroy(whole));
}

void facts_of_programmatic_launches()
{
    CUcontext context;
    cudaStream_t other = stream_of(cudaStreamNonBlocking);
    cudaEvent_t passed = event_of(), fresh = event_of();
    MUST(cuCtxGetCurrent(&context));
    MUST(cudaEventRecord(passed, other));
    MUST(cudaDeviceSynchronize());
    between("nothing between", 1, [](cudaStream_t) {});
    between("nothing between, A does not trigger", 0, [](cudaStream_t) {});
    between("wait for an event that has passed", 1, [&](cudaStream_t s) { MUST(cudaStreamWaitEvent(s, passed, 0)); });
    between("wait for another stream's event, 3 ms away", 1, [&](cudaStream_t s) {
        launch(other, 3 * MS, times + 6);
        MUST(cudaEventRecord(fresh, other));
        MUST(cudaStreamWaitEvent(s, fresh, 0));
    });
    between("wait for a context event recorded behind A", 1, [&](cudaStream_t s) {
        MUST(cuCtxRecordEvent(context, fresh));
        MUST(cudaStreamWaitEvent(s, fresh, 0));
    });
    between("cuCtxRecordEvent alone", 1, [&](cudaStream_t) { MUST(cuCtxRecordEvent(context, fresh)); });
    between("cudaEventRecord on the stream", 1, [&](cudaStream_t s) { MUST(cudaEventRecord(fresh, s)); });
    between("cudaMemsetAsync of 8 bytes", 1, [&](cudaStream_t s) { MUST(cudaMemsetAsync(times + 8, 0, 8, s)); });
    behind();
    MUST(cudaStreamDestroy(other));
    MUST(cudaEventDestroy(passed));
    MUST(cudaEventDestroy(fresh));
}

static void ended(int)
{
    static const char line[] = "{\"failed\": \"no end within 120 s\"}\n";
    if (write(1, line, sizeof(line) - 1) < 0)
        _exit(4);
    _exit(3);
}

int main(int argc, char **argv)
{
    struct {
        const char *name;
        void (*facts)();
    } parts[] = {{"order", facts_of_order},
                 {"programmatic", facts_of_programmatic_launches},
                 {"captures", facts_of_captures},
                 {"contexts", facts_of_contexts},
                 {"costs", facts_of_costs},
                 {"maps", facts_of_maps},
                 {"ipc", facts_of_ipc}};
    signal(SIGALRM, ended);
    alarm(120);
    MUST(cudaSetDevice(0));
    MUST(cudaMalloc(&times, 4096));
    launch(cudaStreamLegacy, 1000, times); // loads the kernels: a load in between would wait for the device
    nothing<<<1, 1>>>();
    MUST(cudaDeviceSynchronize());
    for (auto &part : parts) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++)
            wanted = wanted || !strcmp(argv[i], part.name);
        if (wanted)
            part.facts();
    }
    MUST(cudaDeviceSynchronize());
    return failures > 0;
}
