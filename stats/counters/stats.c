#include "stats/counters/stats.h"

#include <stddef.h>
#include <string.h>

#include "stats/os/pause.h"

/* A sum may be negative: a free in one thread may be counted before the allocation in another. */
static void note(stat_value *moment, uint64_t n)
{
    stat_set(moment, (int64_t)n < 0 ? 0 : n);
}

uint64_t stats_largest_allocatable(const struct device_stats *stats)
{
    uint64_t block = stats_get(stats, COUNTER_largest_allocatable_bytes);
    uint64_t movable = stats_get(stats, COUNTER_movable_bytes);
    return block > movable ? block : movable;
}

void stats_note_moment(const struct device_stats *stats, stat_value *moment)
{
#define STAT_MOMENT(name) note(&moment[MOMENT_##name], stats_current_all(stats, STAT_##name))
    STAT_MOMENT(requested_bytes);
    STAT_MOMENT(allocated_bytes);
    STAT_MOMENT(active_bytes);
    STAT_MOMENT(reserved_bytes);
    STAT_MOMENT(inactive_split_bytes);
#undef STAT_MOMENT
    note(&moment[MOMENT_reusable_bytes], stats_get(stats, COUNTER_reusable_bytes));
    note(&moment[MOMENT_largest_allocatable_bytes], stats_largest_allocatable(stats));
}

int stats_copy_bounded(struct device_stats *to, const struct device_stats *from, int *tries)
{
    const stat_value *source = (const stat_value *)from;
    stat_value *target = (stat_value *)to;
    for (;;) {
        uint64_t before = atomic_load_explicit(&from->sequence, memory_order_acquire);
        for (size_t i = 0; i < sizeof *to / sizeof *target; i++)
            stat_set(&target[i], stat_get(&source[i]));
        stats_set(to, COUNTER_largest_allocatable_bytes, stats_largest_allocatable(to));
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && stat_get(&from->sequence) == before)
            return 0;
        if (!pause_between((*tries)++))
            return -1;
    }
}

int stats_copy(struct device_stats *to, const struct device_stats *from)
{
    int tries = 0;
    return stats_copy_bounded(to, from, &tries);
}
