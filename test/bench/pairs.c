/* One thread: a pair of malloc and free. The baseline is the same loop with libc's malloc of 64 B,
 * which a thread answers from a list of its own. */
#include <dlfcn.h>
#include <string.h>

#include "bench.h"

#define BASE_BYTES 64

static void print(uint64_t ours, uint64_t base, uint64_t count)
{
    printf("{\"ns\": %.2f, \"base\": %.2f}\n", (double)ours / (double)count,
           (double)base / (double)count);
}

void bench_pair(const uint64_t *argument)
{
    size_t bytes = argument[0];
    uint64_t rounds = argument[1], pairs = argument[2];
    void *block;
    for (uint64_t i = 0; i < pairs / 10 + 2; i++) {
        MUST(cudaMalloc(&block, bytes));
        MUST(cudaFree(block));
    }
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t begin = bench_now();
        for (uint64_t i = 0; i < pairs; i++) {
            MUST(cudaMalloc(&block, bytes));
            MUST(cudaFree(block));
        }
        uint64_t middle = bench_now();
        for (uint64_t i = 0; i < pairs; i++) {
            bench_keep(block = malloc(BASE_BYTES));
            free(block);
        }
        print(middle - begin, bench_now() - middle, pairs);
    }
}

static void driver_function(void *to, size_t bytes, const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *function = dlsym(driver, name);
    if (!function)
        bench_fail(name, 1);
    memcpy(to, &function, bytes);
}

/* What a static cudart calls, without it; the base is the one question that we ask the driver. */
void bench_door(const uint64_t *argument)
{
    int (*alloc)(uint64_t *, size_t), (*give)(uint64_t), (*current)(void **);
    uint64_t rounds = argument[1], pairs = argument[2], block;
    void *context;
    driver_function(&alloc, sizeof alloc, "cuMemAlloc_v2");
    driver_function(&give, sizeof give, "cuMemFree_v2");
    driver_function(&current, sizeof current, "cuCtxGetCurrent");
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t begin = bench_now();
        for (uint64_t i = 0; i < pairs; i++) {
            MUST(alloc(&block, argument[0]));
            MUST(give(block));
        }
        uint64_t middle = bench_now();
        for (uint64_t i = 0; i < pairs; i++)
            MUST(current(&context));
        print(middle - begin, bench_now() - middle, pairs);
    }
}

static uint64_t replace_ours(void **block, uint64_t *random, uint64_t count)
{
    uint64_t begin = bench_now();
    for (uint64_t i = 0; i < count; i++) {
        void **one = &block[bench_random(random) % KEPT];
        MUST(cudaFree(*one));
        MUST(cudaMalloc(one, bench_size(random)));
    }
    return bench_now() - begin;
}

static uint64_t replace_libc(void **block, uint64_t *random, uint64_t count)
{
    uint64_t begin = bench_now();
    for (uint64_t i = 0; i < count; i++) {
        void **one = &block[bench_random(random) % KEPT];
        free(*one);
        bench_keep((void *)bench_size(random));
        bench_keep(*one = malloc(BASE_BYTES));
    }
    return bench_now() - begin;
}

void bench_churn(const uint64_t *argument)
{
    static void *block[KEPT], *libc[KEPT];
    uint64_t rounds = argument[0], count = argument[1], random = 1;
    for (int i = 0; i < KEPT; i++) {
        MUST(cudaMalloc(&block[i], bench_size(&random)));
        libc[i] = malloc(BASE_BYTES);
    }
    replace_ours(block, &random, count / 2);
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t ours = replace_ours(block, &random, count);
        print(ours, replace_libc(libc, &random, count), count);
    }
}

/* `live` blocks, each of one of `sizes` sizes (multiples of 512 B), replaced at random. */
void bench_grow(const uint64_t *argument)
{
    uint64_t live = argument[0], sizes = argument[1], random = 1;
    void **block = malloc(live * sizeof *block);
    if (!block)
        bench_fail("malloc", 1);
    for (uint64_t i = 0; i < live; i++)
        MUST(cudaMalloc(&block[i], 512 * (1 + bench_random(&random) % sizes)));
    for (uint64_t round = 0; round < argument[2]; round++) {
        uint64_t begin = bench_now();
        for (uint64_t i = 0; i < argument[3]; i++) {
            void **one = &block[bench_random(&random) % live];
            MUST(cudaFree(*one));
            MUST(cudaMalloc(one, 512 * (1 + bench_random(&random) % sizes)));
        }
        uint64_t middle = bench_now();
        for (uint64_t i = 0; i < argument[3]; i++) {
            void *libc;
            bench_keep(block[bench_random(&random) % live]);
            bench_keep(libc = malloc(BASE_BYTES));
            free(libc);
        }
        print(middle - begin, bench_now() - middle, argument[3]);
    }
    fflush(stdout);
    for (uint64_t i = 0; i < live; i++)
        MUST(cudaFree(block[i]));
    free(block);
}
