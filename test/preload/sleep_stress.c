/* Threads with blocks of their own, which they fill, copy and compare in full, while others put the
 * process to sleep and wake it. Arguments: seed, threads, operations, most sleeps. */
#include <pthread.h>
#include <stdatomic.h>

#include "sleeper.h"

#define HELD 10
#define STREAMS 2

static CUcontext context;
static unsigned seed, operations, sleeps;
static _Atomic int working;

struct worker {
    uint64_t random;
    CUstream stream[STREAMS];
    struct block held[HELD];
    uint32_t numbers;
};

static unsigned dice(struct worker *w, unsigned sides)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->random >> 33) % sides;
}

static void take(struct worker *w, struct block *block, CUstream stream)
{
    static const size_t sizes[] = {100, 512, 5000, 70 * KIB, MIB, 3 * MIB, 5 * MIB};
    block->bytes = dice(w, 3) ? sizes[dice(w, 7)] : 1 + dice(w, 4 * MIB);
    block->number = ++w->numbers * 16 + (uint32_t)(w->random & 15);
    if (cuMemAlloc_v2(&block->address, block->bytes))
        block->address = 0;
    else
        fill_block(block, stream);
}

/* Its bytes become those of another number, on the device. */
static void copy(struct block *to, const struct block *from, CUstream stream)
{
    if (!from->address || to == from || from->bytes != to->bytes)
        return;
    OK(cuCtxSynchronize()); /* the other block may lie on another stream */
    OK(cuMemcpyDtoDAsync(to->address, from->address, from->bytes, stream));
    to->number = from->number;
    OK(cuStreamSynchronize(stream));
}

static void *work(void *argument)
{
    struct worker w = {.random = seed * 1000003u + (uintptr_t)argument};
    OK(cuCtxSetCurrent(context));
    for (int i = 1; i < STREAMS; i++)
        OK(cuStreamCreate(&w.stream[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < operations; i++) {
        unsigned which = dice(&w, HELD);
        struct block *block = &w.held[which];
        if (i % 50 == 0) /* phases on one stream, and on several */
            OK(cuCtxSynchronize());
        CUstream stream = w.stream[i / 50 % 2 ? which % STREAMS : 0];
        if (!block->address) {
            take(&w, block, stream);
        } else if (dice(&w, 2)) {
            CHECK(wrong_bytes(block, stream) == 0);
            write_all(stream, 3000000, block->address, block->bytes); /* under way for a while */
        } else if (dice(&w, 2)) {
            copy(block, &w.held[dice(&w, HELD)], stream);
        } else {
            write_all(stream, 20000, block->address,
                      block->bytes); /* work is under way at the free */
            OK(cuMemFree(block->address));
            block->address = 0;
        }
    }
    OK(cuCtxSynchronize());
    for (int i = 0; i < HELD; i++)
        if (w.held[i].address) {
            CHECK(wrong_bytes(&w.held[i], NULL) == 0);
            OK(cuMemFree(w.held[i].address));
        }
    for (int i = 1; i < STREAMS; i++)
        OK(cuStreamDestroy(w.stream[i]));
    working--;
    return NULL;
}

int main(int count, char **argument)
{
    pthread_t thread[16];
    unsigned slept = 0;
    CHECK(count == 5);
    seed = (unsigned)atoi(argument[1]);
    size_t threads = (size_t)atoi(argument[2]);
    operations = (unsigned)atoi(argument[3]);
    sleeps = (unsigned)atoi(argument[4]);
    CHECK(threads <= 16);
    context = begin();
    working = (int)threads;
    for (size_t i = 0; i < threads; i++)
        OK(pthread_create(&thread[i], NULL, work, (void *)i));
    struct worker w = {.random = seed};
    for (unsigned i = 0; i < sleeps && working; i++) {
        slept += call_sleep(0) == 0;
        usleep(dice(&w, 3000));
        if (dice(&w, 2))
            call_wake();
    }
    for (size_t i = 0; i < threads; i++)
        OK(pthread_join(thread[i], NULL));
    OK(cuCtxSynchronize());
    fprintf(stderr, "%u\n", slept);
    SAY(cachalot_sim_unfinished());
    return 0;
}
