// Sixteen busy streams and constant malloc and free: each takes blocks, writes and checks them by kernels, and frees them while
// they run. usage: streams16 [ITERATIONS] [THREADS]; one JSON line: seconds, peak allocated, corrupted words. Exit 1 if any.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <mutex>
#include <thread>
#include <vector>

#define STREAMS 16
typedef unsigned long long u64;

static std::atomic<u64> allocated, peak, mallocs;
static std::atomic<int> failures;

static void must(cudaError_t error, const char *call)
{
    if (error != cudaSuccess && failures++ == 0)
        fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
}
#define MUST(call) must(call, #call)

static __global__ void fill(uint32_t *p, size_t words, uint32_t value)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += step)
        p[i] = value ^ (uint32_t)i;
}

static __global__ void verify(const uint32_t *p, size_t words, uint32_t value, u64 *bad)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    u64 wrong = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += step)
        wrong += p[i] != (value ^ (uint32_t)i);
    if (wrong)
        atomicAdd(bad, wrong);
}

struct held {
    uint32_t *at;
    size_t bytes;
};

static void give(held &block)
{
    if (!block.at)
        return;
    MUST(cudaFree(block.at));
    allocated -= block.bytes;
    block.at = nullptr;
}

// One stream's work: a window of live blocks, the oldest freed with its kernels just launched.
static void work(int first, int step, int iterations, cudaStream_t *streams, u64 *bad)
{
    std::vector<std::vector<held>> live(STREAMS, std::vector<held>(4));
    u64 state = 12345 + (u64)first;
    for (int n = 0; n < iterations; n++)
        for (int s = first; s < STREAMS; s += step) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            held &block = live[(size_t)s][(size_t)n % 4];
            give(block);
            size_t bytes = (size_t)4096 << (state >> 33) % 12; // 4 KiB to 8 MiB
            MUST(cudaMalloc(&block.at, bytes));
            if (!block.at)
                continue;
            block.bytes = bytes;
            mallocs++;
            u64 now = allocated += bytes, before = peak;
            while (before < now && !peak.compare_exchange_weak(before, now))
                ;
            fill<<<8, 256, 0, streams[s]>>>(block.at, bytes / 4, (uint32_t)state);
            verify<<<8, 256, 0, streams[s]>>>(block.at, bytes / 4, (uint32_t)state, bad);
        }
    for (auto &blocks : live)
        for (auto &block : blocks)
            give(block);
}

int main(int argc, char **argv)
{
    int iterations = argc > 1 ? atoi(argv[1]) : 1500, count = argc > 2 ? atoi(argv[2]) : 1;
    cudaStream_t streams[STREAMS];
    u64 *bad, corrupted = 0;
    MUST(cudaMalloc(&bad, 8));
    MUST(cudaMemset(bad, 0, 8));
    for (auto &stream : streams)
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    fill<<<1, 1>>>(nullptr, 0, 0);
    verify<<<1, 1>>>(nullptr, 0, 0, bad);
    MUST(cudaDeviceSynchronize());
    auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++)
        threads.emplace_back(work, i, count, iterations, streams, bad);
    for (auto &thread : threads)
        thread.join();
    MUST(cudaDeviceSynchronize());
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    MUST(cudaMemcpy(&corrupted, bad, 8, cudaMemcpyDeviceToHost));
    printf("{\"seconds\": %.3f, \"mallocs\": %llu, \"peak\": %llu, \"corrupted\": %llu, \"failures\": %d}\n", seconds,
           mallocs.load(), peak.load(), corrupted, failures.load());
    return corrupted || failures;
}
