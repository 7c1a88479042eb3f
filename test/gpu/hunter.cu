// Corruption hunter: threads allocate, launch a kernel that writes a pattern over the block, holds it for a while and
// checks it at its end, and free at once, on legacy, per-thread, blocking and non-blocking streams. Natively cudaFree
// waits, so every pattern holds; in front of a cache that reuses too early two kernels meet in one block.
// usage: hunter SECONDS THREADS [NS]; prints reuses and corruptions; exit 1 if there were any.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

__global__ void hold(uint32_t *p, size_t words, uint32_t value, unsigned long long ns, unsigned long long *bad)
{
    unsigned long long begin, now;
    for (size_t i = threadIdx.x; i < words; i += blockDim.x)
        p[i] = value ^ (uint32_t)i;
    __threadfence();
    __syncthreads();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < ns);
    for (size_t i = threadIdx.x; i < words; i += blockDim.x)
        if (((volatile uint32_t *)p)[i] != (value ^ (uint32_t)i))
            atomicAdd(bad, 1ull);
}

static std::atomic<unsigned long long> mallocs, errors;

static void hunt(int id, double seconds, unsigned long long ns, unsigned long long *bad)
{
    cudaStream_t streams[6] = {cudaStreamLegacy, cudaStreamPerThread};
    cudaStreamCreate(&streams[2]);
    cudaStreamCreate(&streams[3]);
    cudaStreamCreateWithFlags(&streams[4], cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&streams[5], cudaStreamNonBlocking);
    uint64_t seed = 77 + id;
    std::vector<uint32_t *> held;
    std::vector<size_t> size;
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t words = 128 << (seed >> 33) % 7;
        uint32_t *p;
        if (cudaMalloc(&p, 4 * words) != cudaSuccess) {
            errors++;
            continue;
        }
        mallocs++;
        hold<<<1, 256, 0, streams[(seed >> 40) % 6]>>>(p, words, (uint32_t)seed, ns, bad);
        held.push_back(p);
        size.push_back(words);
        if (held.size() > 1 + (seed >> 50) % 8) { // some are used again on another stream, in order, before their free
            size_t k = (seed >> 56) % held.size();
            if (cudaFree(held[k]) != cudaSuccess)
                errors++;
            held.erase(held.begin() + k);
            size.erase(size.begin() + k);
        }
    }
    for (auto p : held)
        cudaFree(p);
    cudaDeviceSynchronize();
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    int n = argc > 2 ? atoi(argv[2]) : 4;
    unsigned long long ns = argc > 3 ? strtoull(argv[3], nullptr, 10) : 20000, *bad;
    cudaMallocManaged(&bad, 8);
    *bad = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < n; i++)
        threads.emplace_back(hunt, i, seconds, ns, bad);
    for (auto &t : threads)
        t.join();
    cudaError_t error = cudaDeviceSynchronize();
    printf("mallocs %llu corrupted words %llu errors %llu last %s\n", mallocs.load(), *bad, errors.load(),
           cudaGetErrorString(error));
    return *bad || errors.load() || error != cudaSuccess;
}
