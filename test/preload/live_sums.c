/* Takes and frees blocks at random: argv[3] operations with at most argv[2] MiB live, and then as
 * many with at most argv[4] MiB while it holds a lock on the file argv[6], argv[5] times. So of all
 * processes with the same file one has argv[4] MiB live, and each other argv[2]. argv[1]: the seed.
 * Prints how many requests failed and the longest took, in ms. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/file.h>
#include <time.h>

#include "driver_case.h"

#define BLOCKS 256

static CUdeviceptr block[BLOCKS];
static uint64_t size[BLOCKS], live, random_state, failed, longest_ns;

static uint64_t next(uint64_t below)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (random_state >> 33) % below;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void drop(uint64_t at)
{
    OK(cuMemFree_v2(block[at]));
    live -= size[at];
    block[at] = 0;
}

static void take(uint64_t at, uint64_t bytes)
{
    uint64_t begin = now_ns();
    CUresult result = cuMemAlloc_v2(&block[at], bytes);
    uint64_t took = now_ns() - begin;
    longest_ns = took > longest_ns ? took : longest_ns;
    CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    failed += result != CUDA_SUCCESS;
    size[at] = bytes;
    live += block[at] ? bytes : 0;
}

static void work(uint64_t most, long operations)
{
    for (uint64_t at = 0; live > most; at = next(BLOCKS))
        if (block[at])
            drop(at);
    for (long i = 0; i < operations; i++) {
        uint64_t at = next(BLOCKS), bytes = (1 + next(12)) * 2 * MIB;
        if (block[at])
            drop(at);
        else if (live + bytes <= most)
            take(at, bytes);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 7);
    random_state = (uint64_t)atol(argv[1]);
    uint64_t low = (uint64_t)atol(argv[2]) * MIB, high = (uint64_t)atol(argv[4]) * MIB;
    int file = open(argv[6], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    begin();
    for (long round = 0; round < atol(argv[5]); round++) {
        work(low, atol(argv[3]));
        OK(flock(file, LOCK_EX));
        work(high, atol(argv[3]));
        work(low, 0);
        OK(flock(file, LOCK_UN));
    }
    printf("failed: %llu\nlongest: %llu\n", (unsigned long long)failed,
           (unsigned long long)longest_ns / 1000000);
    return 0;
}
