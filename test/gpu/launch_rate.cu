// What it costs to be watched: launches of an empty kernel with nothing freed, and loops of free, malloc and launch.
// usage: launch_rate ROUNDS [WAY…] (numbers; all of them); one JSON line: of each its median and quartiles, ns.
// Ways alone in a process show one state of the books: 2 one lane, 3 two streams. What a watched launch costs more is
// watch_cost.c's to say: two processes differ by more than that.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <functional>
#include <string>
#include <thread>
#include <vector>

static int failures;

static void must(cudaError_t error, const char *call)
{
    if (error != cudaSuccess && failures++ == 0)
        fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
}
#define MUST(call) must(call, #call)

static __global__ void nothing(void *)
{
}

static cudaStream_t streams[3]; // legacy, blocking, non-blocking
static const int BATCH = 800;   // less than the queue of the device: a launch never waits for room

static double batch(const std::function<void(int)> &call, int count = BATCH)
{
    MUST(cudaDeviceSynchronize());
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; i++)
        call(i);
    auto end = std::chrono::steady_clock::now();
    MUST(cudaDeviceSynchronize());
    return std::chrono::duration<double, std::nano>(end - begin).count() / count;
}

static void launch(cudaStream_t stream, void *block)
{
    nothing<<<1, 1, 0, stream>>>(block);
}

// One malloc, launch and free each time; `apart` launches before the next one.
static double cycle(cudaStream_t stream, size_t bytes, int apart)
{
    return batch([=](int i) {
        void *block = nullptr;
        if (i % apart == 0) {
            MUST(cudaMalloc(&block, bytes));
            launch(stream, block);
            MUST(cudaFree(block));
        } else {
            launch(stream, nullptr);
        }
    });
}

// Launches of several threads at once, each on a stream of its own: ns of one, per thread.
static double threads(int count)
{
    std::vector<std::thread> all;
    std::vector<double> found((size_t)count);
    for (int n = 0; n < count; n++)
        all.emplace_back([&found, n] {
            cudaStream_t own;
            MUST(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
            launch(own, nullptr);
            found[(size_t)n] = batch([=](int) { launch(own, nullptr); });
            MUST(cudaStreamDestroy(own));
        });
    for (auto &thread : all)
        thread.join();
    std::sort(found.begin(), found.end());
    return found[(size_t)count / 2];
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 60;
    void *block;
    struct {
        const char *name;
        std::function<double()> measure;
        std::vector<double> found;
    } ways[] = {
        {"launch, legacy", [] { return batch([](int) { launch(streams[0], nullptr); }); }, {}},
        {"launch, blocking", [] { return batch([](int) { launch(streams[1], nullptr); }); }, {}},
        {"launch, non-blocking", [] { return batch([](int) { launch(streams[2], nullptr); }); }, {}},
        {"launch, two streams in turn", [] { return batch([](int i) { launch(streams[1 + i % 2], nullptr); }); }, {}},
        {"set of 4 bytes, non-blocking",
         [&] { return batch([&](int) { MUST(cudaMemsetAsync(block, 0, 4, streams[2])); }); }, {}},
        {"launch, 4 threads", [] { return threads(4); }, {}},
        {"malloc launch free, non-blocking, 4 KiB", [] { return cycle(streams[2], 4096, 1); }, {}},
        {"malloc launch free, non-blocking, 20 MiB", [] { return cycle(streams[2], 20 << 20, 1); }, {}},
        {"malloc launch free, legacy, 4 KiB", [] { return cycle(streams[0], 4096, 1); }, {}},
        {"malloc launch free and 9 launches, non-blocking, 4 KiB", [] { return cycle(streams[2], 4096, 10); }, {}},
    };
    MUST(cudaMalloc(&block, 4096));
    MUST(cudaStreamCreate(&streams[1]));
    MUST(cudaStreamCreateWithFlags(&streams[2], cudaStreamNonBlocking));
    std::vector<bool> wanted(sizeof(ways) / sizeof(*ways), argc < 3);
    for (int i = 2; i < argc; i++)
        wanted.at((size_t)atoi(argv[i])) = true;
    for (int round = -1; round < rounds; round++) // the first is not counted
        for (size_t i = 0; i < wanted.size(); i++)
            if (wanted[i]) {
                double ns = ways[i].measure();
                if (round >= 0)
                    ways[i].found.push_back(ns);
            }
    printf("{\"failures\": %d", failures);
    for (auto &way : ways) {
        if (way.found.empty())
            continue;
        std::sort(way.found.begin(), way.found.end());
        printf(", \"%s\": [%.1f, %.1f, %.1f]", way.name, way.found[way.found.size() / 2], way.found[way.found.size() / 4],
               way.found[3 * way.found.size() / 4]);
    }
    printf("}\n");
    return failures > 0;
}
