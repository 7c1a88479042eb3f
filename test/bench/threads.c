/* Many threads at once, each for a given time.
 *
 * threads: pairs of 4 KiB. The baseline is what as many threads reach that do nothing but count in
 * a word of their own, for as long per unit as one thread alone needs for one pair: what this
 * machine gives that many threads that share nothing.
 * passing: blocks of mixed sizes, 512 B and so many powers of two, each freed by the next thread in
 * the ring, which they enter and leave in batches. The baseline is one thread that passes them to
 * itself. */
#include "bench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define THREADS_MAX 64
#define RING 256
#define UNIT 32    /* counts between two looks at the stop sign */
#define GROWING 10 /* rounds before the first: large blocks take their memory from the driver */
#define SHOWN 16   /* blocks that are handed on together: what travels between threads is theirs */

struct worker {
    _Alignas(128) uint64_t done;
    volatile uint64_t count;
    uint64_t random;
    int counting;
    struct worker *next;
    unsigned classes;
    uint64_t made, freed;                /* what of it others see is in put and got */
    uint64_t seen_put, seen_got;         /* looked up again when nothing is to be had */
    _Alignas(128) _Atomic(uint64_t) put; /* by the thread before */
    void *ring[RING];
    _Alignas(128) _Atomic(uint64_t) got;
    pthread_t thread;
};

static struct worker workers[THREADS_MAX];
static _Atomic(int) stop;
static pthread_barrier_t barrier;

static void pair(void)
{
    void *block;
    MUST(cudaMalloc(&block, 4096));
    MUST(cudaFree(block));
}

static void unit(struct worker *worker)
{
    for (uint64_t i = 0; i < UNIT; i++)
        worker->count++;
}

static void show(struct worker *worker)
{
    atomic_store_explicit(&worker->next->put, worker->made, memory_order_release);
    atomic_store_explicit(&worker->got, worker->freed, memory_order_release);
}

/* Gives one block to the next thread if it has room, frees one that came, if any. */
static void pass(struct worker *worker)
{
    struct worker *next = worker->next;
    int idle = 1;
    if (worker->made - worker->seen_got == RING)
        worker->seen_got = atomic_load_explicit(&next->got, memory_order_acquire);
    if (worker->made - worker->seen_got < RING) {
        size_t bytes = (size_t)512 << bench_random(&worker->random) % worker->classes;
        MUST(cudaMalloc(&next->ring[worker->made++ % RING], bytes));
        idle = 0;
    }
    if (worker->freed == worker->seen_put)
        worker->seen_put = atomic_load_explicit(&worker->put, memory_order_acquire);
    if (worker->freed < worker->seen_put) {
        MUST(cudaFree(worker->ring[worker->freed++ % RING]));
        worker->done++;
        idle = 0;
    }
    if (idle || worker->made % SHOWN == 0 || worker->freed % SHOWN == 0)
        show(worker);
    if (idle)
        sched_yield();
}

static int going(void)
{
    return !atomic_load_explicit(&stop, memory_order_relaxed);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    if (!worker->counting) {
        MUST(cudaSetDevice(0));
        pair();
    }
    pthread_barrier_wait(&barrier);
    if (worker->next) {
        while (going())
            pass(worker);
        show(worker);
    } else if (worker->counting)
        for (; going(); worker->done++)
            unit(worker);
    else
        for (; going(); worker->done++)
            pair();
    return NULL;
}

static void wait_ns(uint64_t begin, uint64_t ns)
{
    struct timespec rest = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (bench_now() - begin < ns)
        nanosleep(&rest, NULL);
}

/* How much all threads did in a second. counting: the baseline; classes: blocks of so many sizes
 * go round, 0: none do. */
static double rate(uint64_t threads, uint64_t ms, int counting, unsigned classes)
{
    uint64_t sum = 0;
    atomic_store(&stop, 0);
    MUST(pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1));
    for (uint64_t i = 0; i < threads; i++) {
        struct worker *worker = &workers[i];
        worker->done = 0;
        worker->counting = counting;
        worker->random = i * 77 + 1;
        worker->next = classes ? &workers[(i + 1) % threads] : NULL;
        worker->classes = classes;
        worker->freed = worker->seen_put = worker->got;
        worker->made = worker->seen_got = workers[(i + 1) % threads].got;
        MUST(pthread_create(&worker->thread, NULL, work, worker));
    }
    pthread_barrier_wait(&barrier);
    uint64_t begin = bench_now();
    wait_ns(begin, ms * 1000000);
    atomic_store(&stop, 1);
    for (uint64_t i = 0; i < threads; i++)
        MUST(pthread_join(workers[i].thread, NULL));
    uint64_t ns = bench_now() - begin;
    for (uint64_t i = 0; i < threads; i++) {
        struct worker *worker = &workers[i];
        sum += worker->done;
        for (; worker->got < worker->put; worker->got++)
            MUST(cudaFree(worker->ring[worker->got % RING]));
    }
    pthread_barrier_destroy(&barrier);
    return (double)sum * 1e9 / (double)ns;
}

/* What one thread reaches alone: the best of a few, since others may disturb. */
static double rate_alone(uint64_t ms, int counting)
{
    double best = 0;
    for (int i = 0; i < 4; i++) {
        double one = rate(1, ms / 4 + 1, counting, 0);
        best = one > best ? one : best;
    }
    return best;
}

static uint64_t some_threads(uint64_t threads)
{
    return threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
}

static void print(double ours, double base)
{
    printf("{\"rate\": %.0f, \"base_rate\": %.0f}\n", ours, base);
}

void bench_threads(const uint64_t *argument)
{
    uint64_t threads = some_threads(argument[0]), ms = argument[2];
    rate(threads, ms / 4, 0, 0);
    for (uint64_t round = 0; round < argument[1]; round++) {
        double units_per_pair = rate_alone(ms, 1) / rate_alone(ms, 0);
        double ours = rate(threads, ms, 0, 0), base = rate(threads, ms, 1, 0) / units_per_pair;
        print(ours, base);
    }
}

void bench_passing(const uint64_t *argument)
{
    uint64_t threads = some_threads(argument[0]), ms = argument[2];
    unsigned classes = argument[3] ? (unsigned)argument[3] : 12;
    rate(threads, GROWING * ms, 0, classes);
    for (uint64_t round = 0; round < argument[1]; round++) {
        double base = rate(1, ms, 0, classes), ours = rate(threads, ms, 0, classes);
        print(ours, base);
    }
}
