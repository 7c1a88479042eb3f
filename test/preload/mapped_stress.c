/* Random work on large blocks: memory below them moves, is given back and made again, while work is
 * outstanding. Every block keeps a number of its own at several places, which must still be there
 * when it is freed: memory that two blocks have would lose one of them, also on one stream, where
 * the simulated device sees no disorder. Arguments: seed, threads, operations, MiB (no size comes
 * again, and all are up to that; 0: some do), blocks that a thread has at most. */
#include <pthread.h>

#include "driver_case.h"

#define HELD 12
#define HELD_MOST 96
#define PLACES 8
#define STREAMS 3
#define WORK_NS 30000

static CUcontext context;
static unsigned seed, operations, most, held = HELD;

struct block {
    CUdeviceptr address;
    size_t bytes;
    uint32_t number;
    CUstream stream;
};

struct worker {
    uint64_t random;
    CUstream stream[STREAMS];
    struct block held[HELD_MOST];
    uint32_t numbers;
};

static unsigned dice(struct worker *w, unsigned sides)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->random >> 33) % sides;
}

static CUdeviceptr place(const struct block *block, unsigned i)
{
    return block->address + (block->bytes - 4) / (PLACES - 1) * i / 4 * 4;
}

static void fill(struct block *block)
{
    for (unsigned i = 0; i < PLACES; i++)
        OK(cuMemsetD32Async(place(block, i), block->number, 1, block->stream));
    write_all(block->stream, WORK_NS, block->address, block->bytes);
}

static void check(const struct block *block)
{
    uint32_t seen[PLACES];
    for (unsigned i = 0; i < PLACES; i++)
        OK(cuMemcpyDtoHAsync(&seen[i], place(block, i), 4, block->stream));
    OK(cuStreamSynchronize(block->stream));
    for (unsigned i = 0; i < PLACES; i++)
        CHECK(seen[i] == block->number);
}

/* Mostly with work outstanding. */
static void drop(struct worker *w, struct block *block)
{
    if (dice(w, 4) == 0)
        check(block);
    if (dice(w, 2) == 0)
        write_all(block->stream, WORK_NS, block->address, block->bytes);
    OK(cuMemFree(block->address));
    block->address = 0;
}

static void take(struct worker *w, struct block *block, unsigned streams)
{
    static const size_t sizes[] = {3 * MIB, 5 * MIB, 12 * MIB, 24 * MIB, 40 * MIB};
    if (most)
        block->bytes = MIB + 1 + dice(w, (most - 1) * MIB);
    else
        block->bytes = dice(w, 2) ? sizes[dice(w, 5)] : MIB + 1 + dice(w, 30 * MIB);
    block->stream = w->stream[dice(w, streams)];
    block->number = ++w->numbers << 8 | (uint32_t)(w->random & 255);
    if (cuMemAlloc_v2(&block->address, block->bytes)) { /* full: room for next time */
        block->address = 0;
        struct block *other = &w->held[dice(w, held)];
        if (other->address)
            drop(w, other);
        return;
    }
    fill(block);
}

/* Memory that only the driver gives: the cache makes room for it. */
static void press(void)
{
    size_t room, total;
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    OK(cuMemGetInfo(&room, &total));
    if (cuMemCreate(&memory, room / 2 / (2 * MIB) * (2 * MIB) + 2 * MIB, &properties, 0) == 0 &&
        cuMemRelease(memory)) /* the call that the simulated device fails may be this one */
        OK(cuMemRelease(memory));
}

static void *work(void *argument)
{
    struct worker w = {.random = seed * 1000003u + (uintptr_t)argument};
    OK(cuCtxSetCurrent(context));
    for (int i = 1; i < STREAMS; i++)
        OK(cuStreamCreate(&w.stream[i], i % 2));
    for (unsigned i = 0; i < operations; i++) {
        struct block *block = &w.held[dice(&w, held)];
        unsigned streams = i / 500 % 2 ? STREAMS : 1; /* phases on one stream, and on several */
        if (block->address)
            drop(&w, block);
        else
            take(&w, block, streams);
        if (dice(&w, 300) == 0)
            press();
        if (dice(&w, 100) == 0)
            OK(cuStreamSynchronize(w.stream[0]));
    }
    for (int i = 0; i < (int)held; i++)
        if (w.held[i].address) {
            check(&w.held[i]);
            drop(&w, &w.held[i]);
        }
    for (int i = 1; i < STREAMS; i++)
        OK(cuStreamDestroy(w.stream[i]));
    return NULL;
}

int main(int count, char **argument)
{
    pthread_t thread[16];
    CHECK(count >= 4 && count <= 6);
    most = count > 4 ? (unsigned)atoi(argument[4]) : 0;
    held = count > 5 ? (unsigned)atoi(argument[5]) : HELD;
    CHECK(held <= HELD_MOST);
    seed = (unsigned)atoi(argument[1]);
    size_t threads = (size_t)atoi(argument[2]);
    operations = (unsigned)atoi(argument[3]);
    CHECK(threads <= 16);
    context = begin();
    for (size_t i = 0; i < threads; i++)
        OK(pthread_create(&thread[i], NULL, work, (void *)i));
    for (size_t i = 0; i < threads; i++)
        OK(pthread_join(thread[i], NULL));
    OK(cuCtxSynchronize());
    SAY(cachalot_sim_unfinished());
    return 0;
}
