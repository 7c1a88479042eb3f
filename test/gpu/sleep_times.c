/* How long a sleep and a wake take, by turns with plain copies of the same bytes to pinned memory and
 * back. usage: sleep_times GIB ROUNDS BLOCK_MIB; one JSON line a round: ms of each step, device memory
 * that was given back (by the driver's own count, from a second process's view: NVML says more), and
 * whether each byte is what it was. Runs behind libcachalot.so; the functions are looked up.
 * gcc -O2 -I$CUDA/include -o sleep_times sleep_times.c -lcuda -ldl */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define PINNED (1024 * MIB)
#define MUST(call)                                                                                 \
    do {                                                                                           \
        CUresult must_result = (call);                                                             \
        if (must_result != CUDA_SUCCESS) {                                                         \
            fprintf(stderr, "%s: error %d\n", #call, must_result);                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static CUdeviceptr *block;
static size_t blocks, block_bytes;

/* Each word of a block is its number, its round, and its place. */
static uint32_t word_at(size_t number, size_t round, size_t i)
{
    return (uint32_t)((number * 2654435761u) ^ (round * 40503u) ^ (i * 2246822519u));
}

static void write_blocks(uint32_t *pinned, size_t round)
{
    for (size_t n = 0; n < blocks; n++) {
        for (size_t i = 0; i < block_bytes / 4; i += 1024)
            for (size_t j = i; j < i + 8 && j < block_bytes / 4; j++)
                pinned[j] = word_at(n, round, j);
        MUST(cuMemcpyHtoD(block[n], pinned, block_bytes));
    }
}

static size_t wrong_words(uint32_t *pinned, size_t round)
{
    size_t wrong = 0;
    for (size_t n = 0; n < blocks; n++) {
        memset(pinned, 0, block_bytes);
        MUST(cuMemcpyDtoH(pinned, block[n], block_bytes));
        for (size_t i = 0; i < block_bytes / 4; i += 1024)
            for (size_t j = i; j < i + 8 && j < block_bytes / 4; j++)
                wrong += pinned[j] != word_at(n, round, j);
    }
    return wrong;
}

/* The same bytes through one pinned buffer, as fast as the bus goes. */
static double copy_all(char *pinned, CUstream stream, int out)
{
    double begin = now_ms();
    for (size_t n = 0; n < blocks; n++) {
        char *host = pinned + n * block_bytes % (PINNED - block_bytes + 1) / 4096 * 4096;
        if (out)
            MUST(cuMemcpyDtoHAsync(host, block[n], block_bytes, stream));
        else
            MUST(cuMemcpyHtoDAsync(block[n], host, block_bytes, stream));
    }
    MUST(cuStreamSynchronize(stream));
    return now_ms() - begin;
}

int main(int count, char **argument)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    void *pinned;
    if (count != 4)
        return fprintf(stderr, "usage: sleep_times GIB ROUNDS BLOCK_MIB\n"), 2;
    size_t gib = (size_t)atoi(argument[1]), rounds = (size_t)atoi(argument[2]);
    block_bytes = (size_t)atoi(argument[3]) * MIB;
    blocks = gib * 1024 * MIB / block_bytes;
    int (*sleep_now)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cachalot_sleep");
    int (*wake_now)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cachalot_wake");
    if (!sleep_now || !wake_now || block_bytes > PINNED)
        return fprintf(stderr, "libcachalot.so is not in front, or a block is too large\n"), 2;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemHostAlloc(&pinned, PINNED, 0));
    memset(pinned, 0, PINNED);
    block = calloc(blocks, sizeof *block);
    for (size_t n = 0; n < blocks; n++)
        MUST(cuMemAlloc(&block[n], block_bytes));
    for (size_t round = 0; round < rounds; round++) {
        double out = copy_all(pinned, stream, 1);
        double in = copy_all(pinned, stream, 0);
        memset(pinned, 0, block_bytes);
        write_blocks(pinned, round);
        double begin = now_ms();
        int slept = sleep_now(0) == 0;
        double middle = now_ms();
        int woke = wake_now() == 0;
        double end = now_ms();
        size_t wrong = wrong_words(pinned, round);
        double sleep_ms = middle - begin, wake_ms = end - middle;
        printf(
            "{\"gib\": %zu, \"block_mib\": %zu, \"slept\": %d, \"woke\": %d, \"wrong_words\": %zu, "
            "\"sleep_ms\": %.1f, \"wake_ms\": %.1f, \"pinned_out_ms\": %.1f, \"pinned_in_ms\": "
            "%.1f, "
            "\"sleep_part\": %.3f, \"wake_part\": %.3f}\n",
            gib, block_bytes / MIB, slept, woke, wrong, sleep_ms, wake_ms, out, in, out / sleep_ms,
            in / wake_ms);
        fflush(stdout);
    }
    return 0;
}
