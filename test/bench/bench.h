/* Costs of cudaMalloc and cudaFree as a program sees them. Linked to any cudart; knows nothing of
 * what may lie in front of it. Each measurement prints one JSON line per round. */
#ifndef TEST_BENCH_H
#define TEST_BENCH_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define KEPT 10000 /* live blocks of mixed sizes */

#define MUST(call)                                                                                 \
    do {                                                                                           \
        int code_ = (int)(call);                                                                   \
        if (code_)                                                                                 \
            bench_fail(#call, code_);                                                              \
    } while (0)

_Noreturn void bench_fail(const char *call, int code);
uint64_t bench_now(void); /* ns of CLOCK_MONOTONIC */

/* Keeps the compiler from dropping or merging what the baselines do. */
static inline void bench_keep(void *value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}

static inline uint32_t bench_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}

/* 512 B to 1 MiB, as in PyTorch's figures. */
static inline size_t bench_size(uint64_t *state)
{
    return (size_t)512 << (bench_random(state) % 12);
}

/* Measurements: arguments behind the name, all numbers. */
void bench_pair(const uint64_t *argument);    /* bytes rounds pairs */
void bench_door(const uint64_t *argument);    /* the same */
void bench_churn(const uint64_t *argument);   /* rounds replacements */
void bench_grow(const uint64_t *argument);    /* live sizes rounds replacements */
void bench_threads(const uint64_t *argument); /* threads rounds milliseconds */
void bench_passing(const uint64_t *argument); /* threads rounds milliseconds, sizes (12) */
void bench_live(const uint64_t *argument);    /* blocks */
void bench_start(const uint64_t *argument);   /* nothing */
void bench_hits(const uint64_t *argument);    /* replacements */
void bench_steps(const uint64_t *argument);   /* replacements, every how many, their numbers… */

/* Patterns, beside malloc. */
void bench_beside(const uint64_t *argument);  /* live rounds replacements */
void bench_larson(const uint64_t *argument);  /* threads rounds blocks */
void bench_xmalloc(const uint64_t *argument); /* the same */
void bench_mstress(const uint64_t *argument);
void bench_sh8(const uint64_t *argument);

#endif
