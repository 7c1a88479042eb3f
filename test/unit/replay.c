/* Replays an allocation trace (CSV `op,id,bytes,stream` on standard input) through the real
 * allocator on a device made of bookkeeping, every free reusable at once, and prints the peaks:
 * `replay [OPTIONS] [CAPACITY] < trace`. With `thread_cache:on` the thread has a cache, otherwise
 * not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "allocator/reuse/lane.h"
#include "fake_device.h"
#include "stats/counters/cache_row.h"

static void complain(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "%s\n", message);
}

static int no_barrier(void)
{
    return 0; /* there is but one thread */
}

static void begin_cache(struct domain *domain)
{
    static const struct lane_ops ops = {.barrier = no_barrier};
    static struct cache_row row;
    lane_start(domain, &ops);
    domain_thread_begins(domain, &row);
}

static uint64_t take(struct allocator *a, uint64_t bytes)
{
    uint64_t address = allocator_hit_alone(a, bytes);
    return address || allocator_malloc(a, bytes, &address) == 0 ? address : 0;
}

int main(int argc, char **argv)
{
    static uint64_t addresses[10000000];
    static struct device_stats row, *stats = &row;
    struct fake_device device;
    fake_init(&device, argc > 2 ? strtoull(argv[2], NULL, 10) : UINT64_MAX);
    struct options options;
    options_default(&options);
    options.expandable = EXPANDABLE_FALSE;
    if (argc > 1 && options_parse(&options, argv[1], OPTIONS_ALL, complain, NULL))
        return 2;
    struct domain *domain = domain_create(&options);
    struct allocator *a =
        allocator_create(domain, &fake_ops, &device, 1, 0, stats, device.capacity);
    if (argc > 1 && strstr(argv[1], "thread_cache:on"))
        begin_cache(domain);
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long id, bytes;
        if (sscanf(line, "a,%llu,%llu", &id, &bytes) == 2) {
            addresses[id] = take(a, bytes);
        } else if (sscanf(line, "f,%llu", &id) == 1 && addresses[id]) {
            if (!domain_free_alone(addresses[id]) &&
                domain_free(domain, addresses[id], FREED_NATIVE)) {
                fprintf(stderr, "free of %llu failed\n", id);
                return 1;
            }
        }
    }
#define PEAK(kind) (unsigned long long)atomic_load(&stats->stat[STAT_##kind].peak[STAT_POOLS])
#define SUM(kind)                                                                                  \
    (unsigned long long)(atomic_load(&stats->stat[STAT_##kind].allocated[0]) +                     \
                         atomic_load(&stats->stat[STAT_##kind].allocated[1]))
    domain_thread_ends(domain);
    printf("mallocs %llu peak_requested %llu peak_allocated %llu peak_reserved %llu segments %llu "
           "ooms %llu\n",
           SUM(allocation), PEAK(requested_bytes), PEAK(allocated_bytes), PEAK(reserved_bytes),
           SUM(segment), (unsigned long long)stats_get(stats, COUNTER_num_ooms));
    return 0;
}
