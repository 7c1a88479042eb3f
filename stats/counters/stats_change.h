/* How a device's statistics are changed and read. Inline, since each request changes a dozen
 * numbers. All writers hold the allocator's lock. */
#ifndef CACHALOT_STATS_COUNTERS_STATS_CHANGE_H
#define CACHALOT_STATS_COUNTERS_STATS_CHANGE_H

#include "stats/counters/stats_layout.h"

static inline void stats_begin(struct device_stats *stats)
{
    stat_increase(&stats->sequence, 1);
    atomic_thread_fence(memory_order_release);
}

static inline void stats_end(struct device_stats *stats)
{
    atomic_store_explicit(&stats->sequence, stat_get(&stats->sequence) + 1, memory_order_release);
}

static inline uint64_t stats_current(const struct device_stats *stats, enum stat_kind kind,
                                     enum stat_pool pool)
{
    const struct pool_stat *stat = &stats->stat[kind];
    return stat_get(&stat->allocated[pool]) - stat_get(&stat->freed[pool]);
}

static inline uint64_t stats_current_all(const struct device_stats *stats, enum stat_kind kind)
{
    return stats_current(stats, kind, SMALL_POOL) + stats_current(stats, kind, LARGE_POOL);
}

static inline void stats_add(struct device_stats *stats, enum stat_kind kind, enum stat_pool pool,
                             uint64_t n)
{
    struct pool_stat *stat = &stats->stat[kind];
    uint64_t allocated = stat_get(&stat->allocated[pool]) + n;
    uint64_t current = allocated - stat_get(&stat->freed[pool]);
    enum stat_pool other = pool == SMALL_POOL ? LARGE_POOL : SMALL_POOL;
    stat_set(&stat->allocated[pool], allocated);
    stat_raise_to(&stat->peak[pool], current);
    stat_raise_to(&stat->peak[STAT_POOLS], current + stats_current(stats, kind, other));
}

static inline void stats_subtract(struct device_stats *stats, enum stat_kind kind,
                                  enum stat_pool pool, uint64_t n)
{
    stat_increase(&stats->stat[kind].freed[pool], n);
}

static inline void stats_count(struct device_stats *stats, enum counter_kind kind, uint64_t n)
{
    stat_increase(&stats->counter[kind], n);
}

static inline void stats_set(struct device_stats *stats, enum counter_kind kind, uint64_t value)
{
    stat_set(&stats->counter[kind], value);
}

static inline uint64_t stats_get(const struct device_stats *stats, enum counter_kind kind)
{
    return stat_get(&stats->counter[kind]);
}

/* Books a request of `bytes` in the histogram; `live` is +1 when handed out, -1 when freed. */
static inline void stats_histogram(struct device_stats *stats, uint64_t bytes, int live)
{
    unsigned bin = stat_bin_of(bytes);
    if (live > 0)
        stat_increase(&stats->histogram_total[bin], 1);
    stat_increase(&stats->histogram_live[bin], (uint64_t)(int64_t)live);
    stat_increase(&stats->histogram_live_bytes[bin], live > 0 ? bytes : -bytes);
}

#endif
