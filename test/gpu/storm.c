/* Sizes of 1 B to 1 GiB (or MOST_MIB), all alike likely; 73 of 100 operations allocate, where natively (in
 * granules of 2 MiB) there is room below the cap. Each block's words are looked at before it goes.
 * usage: storm OPERATIONS CAP_MIB SEED [MOST_MIB]; one JSON line. */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 4096
#define GRANULE ((uint64_t)2 << 20)

static struct block {
    CUdeviceptr address;
    uint64_t bytes;
    uint32_t word;
} live[MOST];
static uint64_t state;

static uint64_t dice(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 20;
}

static uint64_t granules(uint64_t bytes)
{
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

/* Words that are not what was written. */
static unsigned wrong_words(const struct block *block)
{
    uint64_t words = block->bytes / 4;
    unsigned wrong = 0;
    for (unsigned i = 0; i < 8 && words; i++) {
        uint64_t at = i == 0 ? 0 : i == 1 ? words - 1 : dice() % words;
        uint32_t word = 0;
        wrong += cuMemcpyDtoH(&word, block->address + 4 * at, 4) != 0 || word != block->word;
    }
    return wrong;
}

int main(int count, char **argument)
{
    CUcontext context;
    if (count < 4 || count > 5 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
        cuCtxSetCurrent(context))
        return 1;
    uint64_t cap = strtoull(argument[2], NULL, 10) << 20, used = 0, mallocs = 0;
    unsigned number = 0, failed = 0, wrong = 0;
    uint64_t most = count > 4 ? strtoull(argument[4], NULL, 10) << 20 : (uint64_t)1 << 30;
    state = strtoull(argument[3], NULL, 10);
    for (uint64_t left = strtoull(argument[1], NULL, 10); left; left--) {
        uint64_t bytes = 1 + dice() % most;
        if (dice() % 100 < 73 || !number) {
            struct block *block = &live[number];
            if (used + granules(bytes) > cap || number == MOST)
                continue;
            mallocs++;
            *block = (struct block){.bytes = bytes, .word = (uint32_t)mallocs};
            if (cuMemAlloc(&block->address, bytes)) {
                failed++;
                continue;
            }
            if (bytes >= 4)
                wrong += cuMemsetD32Async(block->address, block->word, bytes / 4, 0) != 0;
            used += granules(bytes);
            number++;
        } else {
            struct block *block = &live[dice() % number];
            wrong += wrong_words(block);
            wrong += cuMemFree(block->address) != 0;
            used -= granules(block->bytes);
            *block = live[--number];
        }
    }
    printf("{\"mallocs\": %llu, \"failed\": %u, \"wrong\": %u}\n", (unsigned long long)mallocs,
           failed, wrong);
    return 0;
}
