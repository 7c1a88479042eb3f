// Corruption hunter for pinned memory: threads allocate, write from the host at once, launch work that reads or writes the block
// later, and free at once. Natively cudaFreeHost waits for the device, so every pattern holds. In front of a cache that reuses too
// early, the next owner's host writes meet a kernel or a copy of the last one. Prints one JSON line, as hunter.cu does.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <unordered_set>
#include <vector>

typedef unsigned long long u64;

static struct {
    double seconds = 10;
    u64 reuses = ~0ull, seed = 1;
    int threads = 4, devices = 1;
} want;

enum { STREAMS = 4, MOST_DEVICES = 2, STRIDE = 64, MOST_BYTES = 4 << 20 };
static u64 *bad[MOST_DEVICES]; // per device: wrong words
static std::atomic<u64> reuses, same, steps, errors, early;
static char first_error[200];
static std::mutex lock;
static std::unordered_set<void *> seen;

#define GOOD(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t got = (call);                                                                                      \
        if (got != cudaSuccess && errors.fetch_add(1) == 0)                                                            \
            snprintf(first_error, sizeof first_error, "line %d: %s: %s", __LINE__, #call, cudaGetErrorString(got));    \
    } while (0)

__device__ static void spin(unsigned ns)
{
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

// After a while the words must be those that the host wrote. `writes`: then it writes other ones.
__global__ void look(volatile uint32_t *at, size_t words, uint32_t value, unsigned ns, u64 *wrong, int writes)
{
    u64 found = 0;
    spin(ns);
    for (size_t i = threadIdx.x * (size_t)STRIDE; i < words; i += blockDim.x * (size_t)STRIDE) {
        found += at[i] != (value ^ (uint32_t)i);
        if (writes)
            at[i] = ~value;
    }
    if (found)
        atomicAdd(wrong, found);
}

__global__ void wait(unsigned ns)
{
    spin(ns);
}

__global__ void fill(uint32_t *at, size_t words, uint32_t value)
{
    for (size_t i = threadIdx.x; i < words; i += blockDim.x)
        at[i] = value ^ (uint32_t)i;
}

static void note(void *address, void *last)
{
    same += address == last;
    std::lock_guard<std::mutex> held(lock);
    reuses += !seen.insert(address).second;
}

struct worker {
    u64 state;
    cudaStream_t stream[MOST_DEVICES][STREAMS];
    uint32_t *there[MOST_DEVICES]; // of the device, for copies
    cudaStream_t used[MOST_DEVICES]; // the stream that used it last
    unsigned below(unsigned n)
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (unsigned)((state >> 32) * n >> 32);
    }
    void begin(int id);
    void *step(void *last);
};

void worker::begin(int id)
{
    state = want.seed * 1000003 + (u64)id;
    for (int device = 0; device < want.devices; device++) {
        GOOD(cudaSetDevice(device));
        for (int i = 0; i < STREAMS; i++)
            GOOD(cudaStreamCreateWithFlags(&stream[device][i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
        GOOD(cudaMalloc(&there[device], MOST_BYTES));
        used[device] = stream[device][0];
    }
}

void *worker::step(void *last)
{
    uint32_t *at = nullptr, value = (uint32_t)below(~0u);
    size_t words = (below(4) ? 4096 : 1 + below(MOST_BYTES)) / 4;
    unsigned ns = below(300) ? 2000 + below(20000) : 2000000;
    int device = (int)below((unsigned)want.devices), way = (int)below(4);
    cudaStream_t on = stream[device][below(STREAMS)];
    words += !words;
    GOOD(cudaSetDevice(device));
    GOOD(cudaHostAlloc(&at, words * 4, below(8) ? 0 : cudaHostAllocWriteCombined));
    if (!at)
        return nullptr;
    note(at, last);
    for (size_t i = 0; i < words; i += STRIDE)
        ((volatile uint32_t *)at)[i] = value ^ (uint32_t)i;
    switch (way) {
    case 0: // a kernel reads, and perhaps writes
        look<<<1, 128, 0, on>>>(at, words, value, ns, bad[device], (int)below(2));
        break;
    case 1: // a copy reads, late
        GOOD(cudaStreamSynchronize(used[device]));
        used[device] = on;
        wait<<<1, 1, 0, on>>>(ns);
        GOOD(cudaMemcpyAsync(there[device], at, words * 4, cudaMemcpyHostToDevice, on));
        look<<<1, 128, 0, on>>>(there[device], words, value, 0, bad[device], 0);
        break;
    case 2: // two streams
        look<<<1, 128, 0, on>>>(at, words, value, ns, bad[device], 0);
        look<<<1, 128, 0, stream[device][below(STREAMS)]>>>(at, words, value, ns / 2, bad[device], 0);
        break;
    default: { // a copy writes what the host sees when the free has returned
        uint32_t *watched = nullptr;
        GOOD(cudaMallocHost(&watched, 256));
        watched[0] = ~value;
        GOOD(cudaStreamSynchronize(used[device]));
        used[device] = on;
        fill<<<1, 32, 0, on>>>(there[device], 64, value);
        wait<<<1, 1, 0, on>>>(ns);
        GOOD(cudaMemcpyAsync(watched, there[device], 256, cudaMemcpyDeviceToHost, on));
        GOOD(cudaFreeHost(at));
        early += ((volatile uint32_t *)watched)[0] != value;
        GOOD(cudaStreamSynchronize(on));
        GOOD(cudaFreeHost(watched));
        return at;
    }
    }
    GOOD(cudaFreeHost(at));
    return at;
}

static void hunt(int id, std::chrono::steady_clock::time_point end)
{
    worker me;
    void *last = nullptr;
    me.begin(id);
    while (std::chrono::steady_clock::now() < end && reuses < want.reuses && errors < 100) {
        last = me.step(last);
        steps++;
    }
}

static void print(bool hung, double seconds, u64 corrupted)
{
    printf("{\"hung\": %s, \"threads\": %d, \"devices\": %d, \"seconds\": %.1f, \"reuses\": %llu, \"same\": %llu, \"switches\": 0, "
           "\"corrupted\": %llu, \"early\": %llu, \"errors\": %llu, \"first_error\": \"%s\", \"last\": \"\"}\n",
           hung ? "true" : "false", want.threads, want.devices, seconds, reuses.load(), same.load(), corrupted, early.load(),
           errors.load(), first_error);
    fflush(stdout);
}

static void watch()
{
    for (u64 before = ~0ull;; before = steps) {
        std::this_thread::sleep_for(std::chrono::seconds(30));
        if (steps == before) {
            print(true, 0, 0);
            _exit(3);
        }
    }
}

int main(int count, char **argument)
{
    for (int i = 1; i + 1 < count; i += 2) {
        double value = atof(argument[i + 1]);
        if (!strcmp(argument[i], "--seconds"))
            want.seconds = value;
        else if (!strcmp(argument[i], "--reuses"))
            want.reuses = (u64)value;
        else if (!strcmp(argument[i], "--seed"))
            want.seed = (u64)value;
        else if (!strcmp(argument[i], "--threads"))
            want.threads = (int)value;
        else if (!strcmp(argument[i], "--devices") && value <= MOST_DEVICES)
            want.devices = (int)value;
        else
            return fprintf(stderr, "hunter_pinned [--seconds N] [--reuses N] [--threads N] [--devices N] [--seed N]\n"), 2;
    }
    for (int device = 0; device < want.devices; device++) {
        GOOD(cudaSetDevice(device));
        GOOD(cudaMalloc(&bad[device], sizeof(u64)));
        GOOD(cudaMemset(bad[device], 0, sizeof(u64)));
    }
    auto begin = std::chrono::steady_clock::now();
    auto end = begin + std::chrono::milliseconds((long)(want.seconds * 1000));
    std::thread(watch).detach();
    std::vector<std::thread> threads;
    for (int i = 0; i < want.threads; i++)
        threads.emplace_back(hunt, i, end);
    for (std::thread &thread : threads)
        thread.join();
    u64 corrupted = 0;
    for (int device = 0; device < want.devices; device++) {
        u64 found = 0;
        GOOD(cudaSetDevice(device));
        GOOD(cudaDeviceSynchronize());
        GOOD(cudaMemcpy(&found, bad[device], sizeof found, cudaMemcpyDeviceToHost));
        corrupted += found;
    }
    print(false, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), corrupted);
    return corrupted || errors || early ? 1 : 0;
}
