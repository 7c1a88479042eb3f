/* Changing and reading a device's statistics: relaxed stores by one writer, a sequence count around
 * them. */
#include "stats/stats.h"

#include <stddef.h>
#include <string.h>

static uint64_t get(const stat_value *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void set(stat_value *value, uint64_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

/* One writer at a time: no read-modify-write instruction is needed. */
static void add(stat_value *value, uint64_t n)
{
    set(value, get(value) + n);
}

static void raise_to(stat_value *peak, uint64_t n)
{
    if (n > get(peak))
        set(peak, n);
}

void stats_begin(struct device_stats *stats)
{
    add(&stats->sequence, 1);
    atomic_thread_fence(memory_order_release);
}

void stats_end(struct device_stats *stats)
{
    atomic_store_explicit(&stats->sequence, get(&stats->sequence) + 1, memory_order_release);
}

uint64_t stats_current(const struct device_stats *stats, enum stat_kind kind, enum stat_pool pool)
{
    const struct pool_stat *stat = &stats->stat[kind];
    return get(&stat->allocated[pool]) - get(&stat->freed[pool]);
}

uint64_t stats_current_all(const struct device_stats *stats, enum stat_kind kind)
{
    return stats_current(stats, kind, SMALL_POOL) + stats_current(stats, kind, LARGE_POOL);
}

void stats_add(struct device_stats *stats, enum stat_kind kind, enum stat_pool pool, uint64_t n)
{
    struct pool_stat *stat = &stats->stat[kind];
    add(&stat->allocated[pool], n);
    raise_to(&stat->peak[pool], stats_current(stats, kind, pool));
    raise_to(&stat->peak[STAT_POOLS], stats_current_all(stats, kind));
}

void stats_subtract(struct device_stats *stats, enum stat_kind kind, enum stat_pool pool,
                    uint64_t n)
{
    add(&stats->stat[kind].freed[pool], n);
}

void stats_count(struct device_stats *stats, enum counter_kind kind, uint64_t n)
{
    add(&stats->counter[kind], n);
}

void stats_set(struct device_stats *stats, enum counter_kind kind, uint64_t value)
{
    set(&stats->counter[kind], value);
}

uint64_t stats_get(const struct device_stats *stats, enum counter_kind kind)
{
    return get(&stats->counter[kind]);
}

static unsigned bin_of(uint64_t bytes)
{
    unsigned bin = bytes <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(bytes - 1);
    return bin < HISTOGRAM_BINS ? bin : HISTOGRAM_BINS - 1;
}

void stats_histogram(struct device_stats *stats, uint64_t bytes, int live)
{
    unsigned bin = bin_of(bytes);
    if (live > 0)
        add(&stats->histogram_total[bin], 1);
    add(&stats->histogram_live[bin], (uint64_t)(int64_t)live);
    add(&stats->histogram_live_bytes[bin], live > 0 ? bytes : -bytes);
}

static void note_moment(const struct device_stats *stats, stat_value *moment)
{
#define STAT_MOMENT(name) set(&moment[MOMENT_##name], stats_current_all(stats, STAT_##name))
    STAT_MOMENT(requested_bytes);
    STAT_MOMENT(allocated_bytes);
    STAT_MOMENT(active_bytes);
    STAT_MOMENT(reserved_bytes);
    STAT_MOMENT(inactive_split_bytes);
#undef STAT_MOMENT
    set(&moment[MOMENT_reusable_bytes], stats_get(stats, COUNTER_reusable_bytes));
    set(&moment[MOMENT_largest_allocatable_bytes],
        stats_get(stats, COUNTER_largest_allocatable_bytes));
}

static void note_peak(struct device_stats *stats, enum stat_kind kind, stat_value *moment,
                      enum moment_kind noted)
{
    uint64_t current = stats_current_all(stats, kind);
    if (current > get(&moment[noted]))
        note_moment(stats, moment);
}

void stats_note_peaks(struct device_stats *stats)
{
    note_peak(stats, STAT_reserved_bytes, stats->at_peak_reserved, MOMENT_reserved_bytes);
    note_peak(stats, STAT_allocated_bytes, stats->at_peak_allocated, MOMENT_allocated_bytes);
}

int stats_copy(struct device_stats *to, const struct device_stats *from)
{
    const stat_value *source = (const stat_value *)from;
    stat_value *target = (stat_value *)to;
    for (int try = 0;; try++) {
        uint64_t before = atomic_load_explicit(&from->sequence, memory_order_acquire);
        for (size_t i = 0; i < sizeof *to / sizeof *target; i++)
            set(&target[i], get(&source[i]));
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && get(&from->sequence) == before)
            return 0;
        if (try == 10000)
            return -1;
    }
}
