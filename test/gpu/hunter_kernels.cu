// The kernels of the corruption hunter: they hold a block for a while and look whether it stayed theirs.
#include "hunter.cuh"

static __device__ void spin(unsigned ns)
{
    u64 begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

// Writes a pattern, lets a programmatic launch behind it begin, holds, verifies, and leaves poison for whoever came too early.
__global__ void hold(words w, uint32_t value, unsigned ns, u64 *bad, unsigned poison)
{
    volatile uint32_t *at = w.at;
    u64 wrong = 0;
    for (unsigned i = threadIdx.x; i < w.count; i += blockDim.x)
        at[(size_t)i * w.stride] = value ^ i;
    __threadfence();
    __syncthreads();
    cudaTriggerProgrammaticLaunchCompletion();
    spin(ns);
    for (unsigned i = threadIdx.x; i < w.count; i += blockDim.x) {
        wrong += at[(size_t)i * w.stride] != (value ^ i);
        if (poison)
            at[(size_t)i * w.stride] = 0xdead0000u + threadIdx.x;
    }
    if (wrong)
        atomicAdd(bad, wrong);
}

// What a set (pattern 0) or a copy of the source (pattern 1) has just put there must be there, and stay.
__global__ void check(words w, int pattern, uint32_t value, unsigned ns, u64 *bad)
{
    volatile uint32_t *at = w.at;
    u64 wrong = 0;
    for (int time = 0; time < 2; time++) {
        for (unsigned i = threadIdx.x; i < w.count; i += blockDim.x) {
            size_t k = (size_t)i * w.stride;
            wrong += at[k] != (pattern ? source_word(k) : value);
        }
        if (time == 0)
            spin(ns);
        __syncthreads();
    }
    for (unsigned i = threadIdx.x; i < w.count; i += blockDim.x)
        at[(size_t)i * w.stride] = 0xdead8000u + threadIdx.x;
    if (wrong)
        atomicAdd(bad, wrong);
}

__global__ void fill_source(uint32_t *at, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        at[i] = source_word(i);
}
