/* Blocks whose bytes are all known, for programs that sleep. */
#ifndef PRELOAD_SLEEPER_H
#define PRELOAD_SLEEPER_H

#include <dlfcn.h>

#include "driver_case.h"

struct block {
    CUdeviceptr address; /* 0: none */
    size_t bytes;
    uint32_t number;
};

/* The byte at `i` of a block with this number. */
static inline unsigned char byte_at(uint32_t number, size_t i)
{
    return (unsigned char)(number * 37 + i * 11 + (i >> 12));
}

static inline unsigned char *pattern_of(const struct block *block)
{
    unsigned char *bytes = malloc(block->bytes);
    CHECK(bytes);
    for (size_t i = 0; i < block->bytes; i++)
        bytes[i] = byte_at(block->number, i);
    return bytes;
}

/* In the calling thread, on this stream; returns when it is done. */
static inline void fill_block(const struct block *block, CUstream stream)
{
    unsigned char *bytes = pattern_of(block);
    OK(cuMemcpyHtoDAsync(block->address, bytes, block->bytes, stream));
    OK(cuStreamSynchronize(stream));
    free(bytes);
}

/* Returns how many bytes are not what they should be. */
static inline size_t wrong_bytes(const struct block *block, CUstream stream)
{
    unsigned char *seen = malloc(block->bytes);
    size_t wrong = 0;
    CHECK(seen);
    OK(cuMemcpyDtoHAsync(seen, block->address, block->bytes, stream));
    OK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < block->bytes; i++)
        wrong += seen[i] != byte_at(block->number, i);
    free(seen);
    return wrong;
}

/* Cachalot's own functions; without it they are missing, and nothing sleeps. */
static inline int call_sleep(unsigned flags)
{
    int (*call)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cachalot_sleep");
    return call ? call(flags) : -1;
}

static inline int call_wake(void)
{
    int (*call)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cachalot_wake");
    return call ? call() : 0;
}

#endif
