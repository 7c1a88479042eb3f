// What the parts of the corruption hunter share.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <mutex>
#include <vector>

typedef unsigned long long u64;

struct options {
    double seconds = 10;
    u64 reuses = ~0ull; // enough: ends earlier
    int threads = 4, devices = 1, hang = 30;
    u64 seed = 1;
    bool mostly_one = true;         // style a; b: all streams at random
    unsigned ns = 2000;             // an ordinary kernel holds its block for so long
    unsigned long_ns = 2000000;     // a long one
    unsigned often = 300;           // one in so many is long
    bool graphs = true, captures = true, programmatic = true, host = false, peers = true, churn = true;
};

enum { DEFAULT, LEGACY, PER_THREAD, BLOCKING, BLOCKING2, FREE, FREE2, SHARED_BLOCKING, SHARED_FREE, STREAMS };

struct block {
    uint32_t *at;
    size_t bytes;
    int device, stream; // the stream of its owner that used it last
};

// Words that a kernel looks at: enough to meet whoever else is there, few enough to be quick.
struct words {
    uint32_t *at;
    unsigned count, stride;
};

struct shared_state {
    options want;
    cudaStream_t streams[2][2];   // per device: blocking, non-blocking
    u64 *bad[2];                  // per device: corrupted words
    uint32_t *source[2], *pinned; // the pattern that copies bring
    std::atomic<u64> mallocs{0}, reuses{0}, same{0}, switches{0}, early{0}, errors{0}, steps{0};
    std::atomic<u64> uses[16];
    std::atomic<int> lane{LEGACY}, last_stream{-1};
    std::atomic<unsigned> one_in{100}; // style a: a switch to another stream
    std::atomic<bool> stop{false};
    std::mutex lock;                  // of the two below
    std::vector<block> given;         // to whoever frees them
    char first_error[200] = "";
};
extern shared_state common;

#define BIG ((size_t)8 << 20)

void note_error(cudaError_t error, const char *call, int line);
#define GOOD(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t got = (call);                                                                                      \
        if (got != cudaSuccess)                                                                                        \
            note_error(got, #call, __LINE__);                                                                          \
    } while (0)

// Counts as a reuse: an address that was handed out before.
void note_malloc(const void *address);

__global__ void hold(words w, uint32_t value, unsigned ns, u64 *bad, unsigned poison);
__global__ void check(words w, int pattern, uint32_t value, unsigned ns, u64 *bad);
__global__ void fill_source(uint32_t *at, size_t count);

__host__ __device__ inline uint32_t source_word(size_t i)
{
    return (uint32_t)i * 2654435761u + 12345u;
}

class worker
{
  public:
    worker(int id, int generation);
    ~worker();
    void step();
    std::atomic<const char *> doing{"nothing"};

  private:
    u64 random();
    unsigned below(unsigned n) { return (unsigned)((random() >> 32) * n >> 32); }
    size_t some_bytes();
    unsigned some_ns(bool pointed);
    int some_stream();
    words words_of(const block &b) const;
    block make(size_t bytes);
    void end(block b);
    void end_some(size_t keep);
    void moved_to(int stream);
    void use(block &b, int stream, bool pointed);
    void use_kernel(const block &b, int stream, unsigned ns, int kind);
    void use_check(const block &b, int stream, unsigned ns, int pattern, uint32_t value);
    void use_graph(const block &b, int stream, unsigned ns);
    void use_again();
    void pointed();
    void plain();
    void capture(bool relaxed);
    void host_sees();
    void peer();
    void hand_over();
    void renew_stream();

    int id, device;
    u64 state;
    cudaStream_t streams[STREAMS], far = nullptr;
    cudaEvent_t event;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaGraphNode_t node = nullptr;
    std::vector<block> held;
    uint32_t *host; // pinned
};
