/* The dearest single hit among many. No counter of the processor is needed, nor any right:
 *
 * hits: in front of us lies a library that calls __sanitizer_cov_trace_pc in each of its basic
 * blocks. All calls are counted in blocks, and the numbers of the dearest are printed.
 * steps: the same calls in the same order with the library as it ships; those named, and every so
 * many, are stepped through (the processor's trap flag), so all their instructions are counted,
 * those in libc as well.
 *
 * The calls: KEPT live blocks of mixed sizes, one of them replaced each time. */
#include "bench.h"

#include <signal.h>
#include <string.h>

#define WORST 8

void __sanitizer_cov_trace_pc(void);

static _Thread_local uint64_t passed; /* blocks */

void __sanitizer_cov_trace_pc(void)
{
    passed++;
}

static void *block[KEPT];
static uint64_t state = 1;

/* As many blocks again as are ever live: what follows only hits. */
static void fill_cache(void)
{
    static void *more[KEPT];
    for (int i = 0; i < KEPT; i++) {
        MUST(cudaMalloc(&block[i], bench_size(&state)));
        MUST(cudaMalloc(&more[i], bench_size(&state)));
    }
    for (int i = 0; i < KEPT; i++)
        MUST(cudaFree(more[i]));
}

struct worst {
    uint64_t blocks, number;
};

/* Keeps the list's dearest, dearest first. Number: of the call, 2 × replacement, + 1 for a malloc.
 */
static void note(struct worst *worst, uint64_t blocks, uint64_t number)
{
    int at = WORST;
    while (at > 0 && worst[at - 1].blocks < blocks)
        at--;
    if (at == WORST)
        return;
    memmove(&worst[at + 1], &worst[at], (size_t)(WORST - 1 - at) * sizeof *worst);
    worst[at] = (struct worst){blocks, number};
}

void bench_hits(const uint64_t *argument)
{
    struct worst worst[WORST] = {{0, 0}};
    uint64_t sum = 0, count = argument[0];
    fill_cache();
    for (uint64_t i = 0; i < count; i++) {
        void **one = &block[bench_random(&state) % KEPT];
        uint64_t begin = passed;
        MUST(cudaFree(*one));
        uint64_t middle = passed;
        MUST(cudaMalloc(one, bench_size(&state)));
        note(worst, middle - begin, 2 * i);
        note(worst, passed - middle, 2 * i + 1);
        sum += passed - begin;
    }
    printf("{\"blocks_per_pair\": %.2f, \"worst\": [", count ? (double)sum / (double)count : 0.0);
    for (int i = 0; i < WORST; i++)
        printf("%s[%llu, %llu]", i ? ", " : "", (unsigned long long)worst[i].blocks,
               (unsigned long long)worst[i].number);
    printf("]}\n");
}

static volatile uint64_t steps;

static void on_step(int number)
{
    (void)number;
    steps++;
}

#ifdef __x86_64__
#define FLAGS(operation)                                                                           \
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" operation                              \
                     " (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp"                                  \
                     :                                                                             \
                     :                                                                             \
                     : "memory", "cc")
#define STEP_BEGIN() FLAGS("orq $0x100,")
#define STEP_END() FLAGS("andq $~0x100,")
#define CAN_STEP 1
#else
#define STEP_BEGIN() (void)0
#define STEP_END() (void)0
#define CAN_STEP 0
#endif

static uint64_t step_free(void *pointer)
{
    uint64_t begin = steps;
    STEP_BEGIN();
    int code = (int)cudaFree(pointer);
    STEP_END();
    MUST(code);
    return steps - begin;
}

static uint64_t step_malloc(void **pointer, size_t bytes)
{
    uint64_t begin = steps;
    STEP_BEGIN();
    int code = (int)cudaMalloc(pointer, bytes);
    STEP_END();
    MUST(code);
    return steps - begin;
}

void bench_steps(const uint64_t *argument)
{
    uint64_t count = argument[0], every = argument[1], sum = 0, sampled = 0, named = 0, sample = 0;
    struct sigaction action = {.sa_handler = on_step};
    MUST(sigaction(SIGTRAP, &action, NULL));
    fill_cache();
    for (uint64_t i = 0; CAN_STEP && i < count; i++) {
        void **one = &block[bench_random(&state) % KEPT];
        size_t bytes;
        int step = i % every == 0, wanted = 0;
        for (int n = 2; n < 2 + WORST; n++)
            wanted |= argument[n] / 2 == i;
        if (!step && !wanted) {
            MUST(cudaFree(*one));
            MUST(cudaMalloc(one, bench_size(&state)));
            continue;
        }
        uint64_t freed = step_free(*one);
        bytes = bench_size(&state);
        uint64_t made = step_malloc(one, bytes), most = freed > made ? freed : made;
        if (wanted && most > named)
            named = most;
        if (step && most > sample)
            sample = most;
        sum += step ? freed + made : 0;
        sampled += (uint64_t)step;
    }
    printf("{\"worst\": %llu, \"sampled\": %llu, \"sample_worst\": %llu, \"per_pair\": %.1f}\n",
           (unsigned long long)named, (unsigned long long)sampled, (unsigned long long)sample,
           sampled ? (double)sum / (double)sampled : 0.0);
}
