/* bench MEASUREMENT NUMBER…: see bench.h. */
#include "bench.h"

#include <string.h>
#include <time.h>

#define NUMBERS_MAX 64

void bench_fail(const char *call, int code)
{
    fprintf(stderr, "%s: error %d\n", call, code);
    exit(1);
}

uint64_t bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bench_start(const uint64_t *argument)
{
    void *block;
    (void)argument;
    MUST(cudaMalloc(&block, 4096));
    printf("{\"at\": %llu}\n", (unsigned long long)bench_now());
    MUST(cudaFree(block));
}

/* Pages of this process that are its own. */
static uint64_t own_bytes(void)
{
    unsigned long long sum = 0, kib;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (!file)
        bench_fail("/proc/self/smaps_rollup", 1);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Private_Dirty: %llu", &kib) == 1)
            sum += kib * 1024;
    fclose(file);
    return sum;
}

void bench_live(const uint64_t *argument)
{
    size_t count = argument[0];
    void **block = malloc(count * sizeof *block);
    if (!block)
        bench_fail("malloc", 1);
    memset(block, 1, count * sizeof *block);
    MUST(cudaMalloc(&block[0], 512));
    uint64_t before = own_bytes();
    for (size_t i = 1; i < count; i++)
        MUST(cudaMalloc(&block[i], 512));
    uint64_t after = own_bytes();
    printf("{\"bytes\": %.1f}\n", (double)(after - before) / (double)(count - 1));
    fflush(stdout);
    for (size_t i = 0; i < count; i++)
        MUST(cudaFree(block[i]));
    free(block);
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        void (*measure)(const uint64_t *argument);
        int numbers; /* at least */
    } all[] = {
        {"pair", bench_pair, 3},       {"door", bench_door, 3},       {"churn", bench_churn, 2},
        {"grow", bench_grow, 4},       {"threads", bench_threads, 3}, {"passing", bench_passing, 3},
        {"live", bench_live, 1},       {"start", bench_start, 0},     {"hits", bench_hits, 1},
        {"steps", bench_steps, 2},     {"beside", bench_beside, 3},   {"larson", bench_larson, 3},
        {"xmalloc", bench_xmalloc, 3}, {"mstress", bench_mstress, 3}, {"sh8", bench_sh8, 3}};
    uint64_t number[NUMBERS_MAX + 1] = {0};
    for (int i = 2; i < count && i < NUMBERS_MAX + 2; i++)
        number[i - 2] = strtoull(argument[i], NULL, 10);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (count > 1 && count - 2 >= all[i].numbers && !strcmp(argument[1], all[i].name)) {
            if (all[i].measure != bench_start)
                MUST(cudaFree(NULL));
            all[i].measure(number);
            return 0;
        }
    fprintf(stderr, "bench pair|door|churn|grow|threads|passing|live|start|hits|steps|"
                    "beside|larson|xmalloc|mstress|sh8 NUMBER…\n");
    return 2;
}
