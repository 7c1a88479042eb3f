// What calls cost that watching submissions would make, ns (medians of batches).
#include "facts.cuh"
#include <atomic>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

static CUcontext context;
static cudaStream_t lane, other;
static cudaEvent_t passed, pending;
static u64 *times;

static void drain()
{
    MUST(cudaDeviceSynchronize());
}

// Everything that is launched meanwhile is behind 30 ms of work.
static void make_busy()
{
    launch(lane, 30 * MS, times);
    MUST(cudaEventRecord(pending, lane));
}

static void make_busy_context()
{
    launch(lane, 30 * MS, times);
    MUST(cuCtxRecordEvent(context, pending));
}

static void costs_of_waits()
{
    struct {
        const char *name;
        cudaStream_t stream;
    } kinds[] = {{"non-blocking", other}, {"legacy", cudaStreamLegacy}, {"per-thread", cudaStreamPerThread}};
    for (auto &kind : kinds) {
        fact("cost", "cuStreamWaitEvent, %s, passed event: %.0f ns", kind.name,
             cost(500, [&] { cuStreamWaitEvent(kind.stream, passed, 0); }, drain));
        fact("cost", "cuStreamWaitEvent, %s, pending event of a stream: %.0f ns", kind.name,
             cost(200, [&] { cuStreamWaitEvent(kind.stream, pending, 0); }, make_busy));
        fact("cost", "cuStreamWaitEvent, %s, pending event of the context: %.0f ns", kind.name,
             cost(200, [&] { cuStreamWaitEvent(kind.stream, pending, 0); }, make_busy_context));
    }
}

static void costs_of_queries()
{
    unsigned long long id;
    CUcontext found;
    CUstreamCaptureStatus status;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    fact("cost", "cuEventQuery, passed: %.0f ns", cost(1000, [&] { cuEventQuery(passed); }));
    fact("cost", "cuEventQuery, pending: %.0f ns", cost(1000, [&] { cuEventQuery(pending); }, make_busy));
    fact("cost", "cuEventQuery, pending event of the context: %.0f ns",
         cost(1000, [&] { cuEventQuery(pending); }, make_busy_context));
    fact("cost", "cuStreamQuery, idle: %.0f ns", cost(1000, [&] { cuStreamQuery(lane); }));
    fact("cost", "cuStreamQuery, busy: %.0f ns", cost(1000, [&] { cuStreamQuery(lane); }, make_busy));
    fact("cost", "cuStreamQuery, legacy, idle: %.0f ns", cost(1000, [&] { cuStreamQuery(CU_STREAM_LEGACY); }));
    fact("cost", "cuStreamIsCapturing: %.0f ns", cost(1000, [&] { cuStreamIsCapturing(lane, &status); }));
    fact("cost", "cuThreadExchangeStreamCaptureMode: %.0f ns",
         cost(1000, [&] { cuThreadExchangeStreamCaptureMode(&mode); }));
    fact("cost", "cuCtxGetCurrent: %.0f ns", cost(1000, [&] { cuCtxGetCurrent(&found); }));
    fact("cost", "cuCtxGetId: %.0f ns", cost(1000, [&] { cuCtxGetId(context, &id); }));
    fact("cost", "cuStreamGetCtx: %.0f ns", cost(1000, [&] { cuStreamGetCtx(lane, &found); }));
    fact("cost", "cuStreamGetId: %.0f ns", cost(1000, [&] { cuStreamGetId(lane, &id); }));
}

// Launches of an empty kernel, 400 to a batch, and what is done before each; interleaved, differences pair by pair.
static void costs_beside_launches()
{
    auto go = [] { nothing<<<1, 1, 0, lane>>>(); };
    struct {
        const char *name;
        std::function<void()> call;
        std::vector<double> ns;
    } ways[] = {{"launch", go, {}},
                {"launch (again: the noise)", go, {}},
                {"cuCtxRecordEvent, launch", [&] { cuCtxRecordEvent(context, pending), go(); }, {}},
                {"launch, cuCtxRecordEvent", [&] { go(), cuCtxRecordEvent(context, pending); }, {}},
                {"cuEventRecord on the stream, launch", [&] { cuEventRecord(pending, lane), go(); }, {}},
                {"cuCtxRecordEvent twice, launch",
                 [&] { cuCtxRecordEvent(context, pending), cuCtxRecordEvent(context, pending), go(); }, {}},
                {"cuStreamWaitEvent passed, launch", [&] { cuStreamWaitEvent(lane, passed, 0), go(); }, {}},
                {"cuStreamIsCapturing, launch",
                 [&] {
                     CUstreamCaptureStatus status;
                     cuStreamIsCapturing(lane, &status), go();
                 },
                 {}}};
    for (int round = 0; round < 40; round++)
        for (auto &way : ways)
            way.ns.push_back(cost(400, way.call, drain, drain, 1));
    for (auto &way : ways) {
        std::vector<double> more;
        for (size_t i = 0; i < way.ns.size(); i++)
            more.push_back(way.ns[i] - ways[0].ns[i]);
        std::sort(more.begin(), more.end());
        fact("cost", "%s: %.0f ns, over a launch %+.0f (quartiles %+.0f to %+.0f)", way.name, median(way.ns),
             more[more.size() / 2], more[more.size() / 4], more[3 * more.size() / 4]);
    }
    fact("cost", "cuCtxRecordEvent, nothing running: %.0f ns",
         cost(1000, [&] { cuCtxRecordEvent(context, pending); }));
}

// What a mark between two kernels takes of the device, which is behind its host: ns of each of 300 kernels.
static void costs_between_kernels()
{
    cudaEvent_t begin, end;
    unsigned *word;
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    MUST(cudaMalloc(&word, 4));
    struct {
        const char *name;
        std::function<void()> call;
        std::vector<double> ns;
    } ways[] = {{"nothing", [] {}, {}},
                {"nothing (again: the noise)", [] {}, {}},
                {"cuEventRecord on the stream", [&] { cuEventRecord(pending, lane); }, {}},
                {"cuCtxRecordEvent", [&] { cuCtxRecordEvent(context, pending); }, {}},
                {"cuStreamWriteValue32", [&] { cuStreamWriteValue32(lane, (CUdeviceptr)word, 1, 0); }, {}}};
    for (int round = 0; round < 20; round++)
        for (auto &way : ways) {
            float ms = 0;
            launch(lane, 10 * MS, times);
            MUST(cudaEventRecord(begin, lane));
            for (int i = 0; i < 300; i++)
                nothing<<<1, 1, 0, lane>>>(), way.call();
            MUST(cudaEventRecord(end, lane));
            drain();
            MUST(cudaEventElapsedTime(&ms, begin, end));
            way.ns.push_back(ms * 1e6 / 300);
        }
    for (auto &way : ways)
        fact("cost", "between kernels on a device that is behind, %s: %.0f ns a kernel, over nothing %+.0f", way.name, median(way.ns),
             median(way.ns) - median(ways[0].ns));
    MUST(cudaFree(word));
}

static void costs_of_membarrier()
{
    long ready = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    long answer = syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    fact("membarrier", "register %ld, first call %ld", ready, answer);
    auto barrier = [] { syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); };
    fact("membarrier", "no other thread of ours: %.0f ns", cost(200, barrier));
    for (int busy = 0; busy < 2; busy++)
        for (int count : {3, 31}) {
            std::atomic<bool> stop{false};
            std::vector<std::thread> threads;
            for (int i = 0; i < count; i++)
                threads.emplace_back([&] {
                    while (!stop)
                        if (!busy)
                            std::this_thread::sleep_for(std::chrono::milliseconds(5));
                });
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            fact("membarrier", "%d other threads, %s, %u processors: %.0f ns", count, busy ? "running" : "asleep",
                 std::thread::hardware_concurrency(), cost(200, barrier));
            stop = true;
            for (auto &thread : threads)
                thread.join();
        }
}

void facts_of_costs()
{
    MUST(cudaMalloc(&times, 4096));
    MUST(cuCtxGetCurrent(&context));
    lane = stream_of(cudaStreamNonBlocking);
    other = stream_of(cudaStreamNonBlocking);
    passed = event_of();
    pending = event_of();
    MUST(cudaEventRecord(passed, lane));
    drain();
    costs_of_waits();
    costs_of_queries();
    costs_beside_launches();
    costs_between_kernels();
    costs_of_membarrier();
    drain();
    MUST(cudaFree(times));
}
