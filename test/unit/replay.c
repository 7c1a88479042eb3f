/* Replays an allocation trace (CSV `op,id,bytes,stream` on standard input) through the real
 * allocator on a device made of bookkeeping, every free reusable at once, and prints the peaks:
 * `replay [OPTIONS] [CAPACITY] < trace`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "fake_device.h"

static void complain(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "%s\n", message);
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
    struct allocator *a = allocator_create(domain, &fake_ops, &device, 1, 0, stats,
                                           options_limit(&options, device.capacity));
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long id, bytes;
        if (sscanf(line, "a,%llu,%llu", &id, &bytes) == 2) {
            if (allocator_malloc(a, bytes, &addresses[id]))
                addresses[id] = 0;
        } else if (sscanf(line, "f,%llu", &id) == 1 && addresses[id]) {
            if (domain_free(domain, addresses[id], FREED_NATIVE)) {
                fprintf(stderr, "free of %llu failed\n", id);
                return 1;
            }
        }
    }
#define PEAK(kind) (unsigned long long)atomic_load(&stats->stat[STAT_##kind].peak[STAT_POOLS])
#define SUM(kind)                                                                                  \
    (unsigned long long)(atomic_load(&stats->stat[STAT_##kind].allocated[0]) +                     \
                         atomic_load(&stats->stat[STAT_##kind].allocated[1]))
    printf("mallocs %llu peak_requested %llu peak_allocated %llu peak_reserved %llu segments %llu "
           "ooms %llu\n",
           SUM(allocation), PEAK(requested_bytes), PEAK(allocated_bytes), PEAK(reserved_bytes),
           SUM(segment), (unsigned long long)stats_get(stats, COUNTER_num_ooms));
    return 0;
}
