// What the parts of facts.cu share: kernels that note when they ran, costs as medians, lines of JSON.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <functional>
#include <vector>

#define MS 1000000ull
typedef unsigned long long u64;

// A fact is a line: {"fact": name, "says": …}. What should not fail is checked and counted.
extern int failures;

inline void must(int code, const char *what, int line)
{
    if (!code)
        return;
    printf("{\"failed\": \"%s\", \"line\": %d, \"code\": %d}\n", what, line, code);
    fflush(stdout);
    failures++;
    cudaGetLastError();
}
#define MUST(call) must((int)(call), #call, __LINE__)

template <class... A> void fact(const char *name, const char *format, A... values)
{
    printf("{\"fact\": \"%s\", \"says\": \"", name);
    printf(format, values...);
    printf("\"}\n");
    fflush(stdout);
}

// Spins for ns; times[0] its begin, times[1] its end. `trigger`: what is launched programmatically behind it may start at once.
static __global__ void spin(u64 ns, u64 *times, int trigger, int wait_first)
{
    u64 begin, now;
    if (wait_first)
        cudaGridDependencySynchronize();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    times[0] = begin;
    if (trigger)
        cudaTriggerProgrammaticLaunchCompletion();
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < ns);
    times[1] = now;
}

static __global__ void nothing()
{
}

inline double us_since(std::chrono::steady_clock::time_point begin)
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// Nanoseconds of one call, median of `rounds` batches; `before` and `after` each batch are not timed.
inline double cost(int batch, const std::function<void()> &call, const std::function<void()> &before = [] {},
                   const std::function<void()> &after = [] { cudaDeviceSynchronize(); }, int rounds = 15)
{
    std::vector<double> found;
    for (int round = 0; round < rounds; round++) {
        before();
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < batch; i++)
            call();
        found.push_back(1000 * us_since(begin) / batch);
        after();
    }
    return median(found);
}

inline cudaStream_t stream_of(unsigned flags)
{
    cudaStream_t stream = nullptr;
    MUST(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

inline cudaEvent_t event_of()
{
    cudaEvent_t event = nullptr;
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

// Launches spin on stream, programmatically or not.
inline void launch(cudaStream_t stream, u64 ns, u64 *times, int programmatic = 0, int trigger = 0, int wait_first = 0)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.gridDim = config.blockDim = dim3(1);
    config.stream = stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = programmatic ? 1 : 0;
    MUST(cudaLaunchKernelEx(&config, spin, ns, times, trigger, wait_first));
}

void facts_of_order();
void facts_of_programmatic_launches();
void facts_of_captures();
void facts_of_contexts();
void facts_of_costs();
void facts_of_maps();
void facts_of_ipc();
