/* Loops after the patterns of mimalloc-bench, with blocks of 512 B to 64 KiB. Each runs with
 * cudaMalloc and cudaFree, and as its baseline with malloc and free: libc's, or those of a library
 * in front of it, of the same sizes.
 *
 * beside: one thread replaces one of many live blocks at random.
 * larson: each thread replaces random blocks of its own; then another thread goes on with them.
 * xmalloc: half of the threads allocate batches, the others free them.
 * mstress: each thread keeps some of what it allocates, frees the rest, and swaps blocks with all.
 * sh8: each thread allocates many blocks, small ones more often, and frees them in mixed order. */
#include "bench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREADS_MAX 64
#define SLOTS 1000 /* blocks of a thread */
#define BATCH 64
#define SHARED 256 /* blocks of all threads; and batches under way */

struct worker;

static struct run {
    void (*pattern)(struct worker *worker);
    int ours;
    uint64_t threads, times;
    _Atomic(void *) shared[SHARED];
    pthread_barrier_t barrier;
} run;

struct worker {
    _Alignas(128) uint64_t number, random, done;
    void *slot[SLOTS];
    pthread_t thread;
};
static struct worker workers[THREADS_MAX];

static void *take(uint64_t *random)
{
    size_t bytes = (size_t)512 * (1 + bench_random(random) % 128);
    void *block = NULL;
    if (!run.ours)
        bench_keep(block = malloc(bytes));
    else
        MUST(cudaMalloc(&block, bytes));
    return block;
}

static void give(void *block)
{
    if (!block)
        return;
    if (run.ours)
        MUST(cudaFree(block));
    else
        free(block);
}

static void replace(struct worker *worker, struct worker *whose)
{
    void **one = &whose->slot[bench_random(&worker->random) % SLOTS];
    give(*one);
    *one = take(&worker->random);
    worker->done++;
}

#define PARTS 8 /* how often the blocks go on to the next thread */

static void larson(struct worker *worker)
{
    for (uint64_t part = 0; part < PARTS; part++) {
        struct worker *whose = &workers[(worker->number + part) % run.threads];
        for (uint64_t i = 0; i < run.times / PARTS; i++)
            replace(worker, whose);
        pthread_barrier_wait(&run.barrier);
    }
}

/* A batch under way is an array of blocks. */
static void xmalloc(struct worker *worker)
{
    uint64_t pairs = run.threads / 2, pair = worker->number % pairs;
    _Atomic(void *) *box = &run.shared[pair * (SHARED / THREADS_MAX)];
    int makes = worker->number < pairs;
    for (uint64_t i = 0; i < run.times / BATCH; i++) {
        _Atomic(void *) *place = &box[i % (SHARED / THREADS_MAX)];
        void **batch = makes ? malloc(BATCH * sizeof *batch) : NULL, **none;
        if (makes && !batch)
            bench_fail("malloc", 1);
        for (int b = 0; makes && b < BATCH; b++)
            batch[b] = take(&worker->random);
        if (makes) {
            for (none = NULL; !atomic_compare_exchange_weak(place, (void **)&none, batch);
                 none = NULL)
                sched_yield();
            continue;
        }
        while (!(batch = atomic_exchange(place, NULL)))
            sched_yield();
        for (int b = 0; b < BATCH; b++)
            give(batch[b]);
        free(batch);
        worker->done += BATCH;
    }
}

static void mstress(struct worker *worker)
{
    for (uint64_t i = 0; i < run.times; i++) {
        uint64_t what = bench_random(&worker->random) % 4;
        void *block = take(&worker->random);
        void **kept = &worker->slot[bench_random(&worker->random) % SLOTS];
        if (what == 0) {
            give(atomic_exchange(&run.shared[bench_random(&worker->random) % SHARED], block));
        } else if (what == 1) {
            give(block);
        } else {
            give(*kept);
            *kept = block;
        }
        worker->done++;
    }
}

/* Forwards and backwards by turns, and every third block later than the others. */
static void sh8(struct worker *worker)
{
    for (uint64_t i = 0; i < run.times / SLOTS; i++) {
        for (int s = 0; s < SLOTS; s++)
            worker->slot[s] = take(&worker->random);
        for (int late = 0; late < 2; late++)
            for (int s = 0; s < SLOTS; s++) {
                void **one = &worker->slot[i % 2 ? s : SLOTS - 1 - s];
                if (((one - worker->slot) % 3 == 0) == late) {
                    give(*one);
                    *one = NULL;
                }
            }
        worker->done += SLOTS;
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    if (run.ours)
        MUST(cudaSetDevice(0));
    void *first = take(&worker->random);
    give(first);
    pthread_barrier_wait(&run.barrier);
    run.pattern(worker);
    pthread_barrier_wait(&run.barrier);
    return NULL;
}

/* Blocks made, and freed, in a second. */
static double rate(void (*pattern)(struct worker *), uint64_t threads, uint64_t times, int ours)
{
    uint64_t done = 0;
    run.pattern = pattern;
    run.ours = ours;
    run.threads = threads;
    run.times = times;
    MUST(pthread_barrier_init(&run.barrier, NULL, (unsigned)threads));
    for (uint64_t i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].random = 77 * i + 1;
        workers[i].done = 0;
    }
    uint64_t begin = bench_now();
    for (uint64_t i = 0; i < threads; i++)
        MUST(pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    for (uint64_t i = 0; i < threads; i++)
        MUST(pthread_join(workers[i].thread, NULL));
    uint64_t ns = bench_now() - begin;
    pthread_barrier_destroy(&run.barrier);
    for (uint64_t i = 0; i < threads; i++) {
        done += workers[i].done;
        for (int s = 0; s < SLOTS; s++) {
            give(workers[i].slot[s]);
            workers[i].slot[s] = NULL;
        }
    }
    for (int s = 0; s < SHARED; s++)
        give(atomic_exchange(&run.shared[s], NULL));
    return (double)done * 1e9 / (double)ns;
}

static void compare(void (*pattern)(struct worker *), const uint64_t *argument)
{
    uint64_t threads = argument[0] < 2             ? 2
                       : argument[0] > THREADS_MAX ? THREADS_MAX
                                                   : argument[0] / 2 * 2;
    for (uint64_t round = 0; round < argument[1]; round++) {
        double ours = rate(pattern, threads, argument[2], 1);
        double base = rate(pattern, threads, argument[2], 0);
        printf("{\"rate\": %.0f, \"base_rate\": %.0f}\n", ours, base);
    }
}

void bench_larson(const uint64_t *argument)
{
    compare(larson, argument);
}

void bench_xmalloc(const uint64_t *argument)
{
    compare(xmalloc, argument);
}

void bench_mstress(const uint64_t *argument)
{
    compare(mstress, argument);
}

void bench_sh8(const uint64_t *argument)
{
    compare(sh8, argument);
}

/* One of `live` blocks replaced at random. */
static double replace_live(void **block, uint64_t live, uint64_t times, int ours)
{
    uint64_t random = 1;
    run.ours = ours;
    for (uint64_t i = 0; i < live; i++)
        block[i] = take(&random);
    uint64_t begin = 0;
    for (uint64_t i = 0; i < times + times / 2; i++) {
        if (i == times / 2)
            begin = bench_now();
        void **one = &block[bench_random(&random) % live];
        give(*one);
        *one = take(&random);
    }
    double ns = (double)(bench_now() - begin) / (double)times;
    for (uint64_t i = 0; i < live; i++)
        give(block[i]);
    return ns;
}

void bench_beside(const uint64_t *argument)
{
    uint64_t live = argument[0];
    void **block = malloc(live * sizeof *block);
    if (!block)
        bench_fail("malloc", 1);
    for (uint64_t round = 0; round < argument[1]; round++) {
        double ours = replace_live(block, live, argument[2], 1);
        printf("{\"ns\": %.2f, \"base\": %.2f}\n", ours, replace_live(block, live, argument[2], 0));
    }
    free(block);
}
