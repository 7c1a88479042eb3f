/* Each thread makes its context, works in it and ends it, while others do the same: every third
 * retains and releases the primary one, so that it ends and begins again. Arguments: threads,
 * rounds. */
#include <pthread.h>
#include <stdint.h>

#include "driver_case.h"

enum { HELD = 12, STEPS = 60, MOST_THREADS = 64 };

static int rounds;

struct block {
    CUdeviceptr address;
    size_t bytes;
};

static void step(struct block *block, CUstream stream, unsigned random, size_t most)
{
    if (!block->address) {
        block->bytes = 1 + random % most;
        block->address = make(block->bytes);
    } else if (random >> 10 & 1) {
        write_all(stream, random % 20000, block->address, block->bytes);
    } else {
        OK(cuMemFree(block->address));
        block->address = 0;
    }
}

static void capture(CUstream stream)
{
    CUgraph graph;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemFree(make(3000)));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
}

/* In the current context; what it does not free is for the context's end. */
static void live(unsigned *random, int frees)
{
    struct block held[HELD] = {0};
    CUstream stream[2];
    for (unsigned i = 0; i < 2; i++)
        OK(cuStreamCreate(&stream[i], i));
    for (int i = 0; i < STEPS; i++) {
        *random = *random * 1664525 + 1013904223;
        unsigned j = (*random >> 24) % HELD;
        step(&held[j], stream[j & 1], *random >> 8, j < HELD / 2 ? 5000 : 6 * MIB);
        if ((*random >> 16) % 40 == 0)
            capture(stream[0]);
    }
    if (!frees)
        OK(cuCtxSynchronize()); /* a free waits, and may while others capture */
    for (int j = 0; frees && j < HELD; j++)
        if (held[j].address)
            OK(cuMemFree(held[j].address));
}

static void *work(void *number)
{
    unsigned which = (unsigned)(uintptr_t)number, random = which * 7919 + 1;
    for (int round = 0; round < rounds; round++) {
        CUcontext context;
        if (which % 3) {
            context = new_context((CUdevice)which % 2);
            live(&random, round % 2);
            OK(cuCtxDestroy(context));
        } else {
            OK(cuDevicePrimaryCtxRetain(&context, 0));
            OK(cuCtxSetCurrent(context));
            live(&random, 1);
            OK(cuDevicePrimaryCtxRelease(0));
            OK(cuCtxSetCurrent(NULL));
        }
    }
    return NULL;
}

int main(int count, char **argument)
{
    pthread_t thread[MOST_THREADS];
    CHECK(count == 3);
    int threads = atoi(argument[1]);
    rounds = atoi(argument[2]);
    CHECK(threads <= MOST_THREADS);
    OK(cuInit(0));
    for (uintptr_t i = 0; i < (uintptr_t)threads; i++)
        OK(pthread_create(&thread[i], NULL, work, (void *)i));
    for (int i = 0; i < threads; i++)
        OK(pthread_join(thread[i], NULL));
    SAY(cachalot_sim_unfinished());
    return 0;
}
