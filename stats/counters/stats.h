/* The statistics of one device: their layout in the live page, and how they are changed and read.
 *
 * Every number is a relaxed atomic with one writer at a time, the holder of the allocator's lock. A
 * reader in another thread or process therefore never sees half a value. A row's `sequence` is odd
 * while it changes; it tells a reader whether the values belong together. Changes are ordered so
 * that allocated <= active <= reserved holds after each store: a row that a killed process left odd
 * is still sound. The changes are inline, since each request changes a dozen numbers.
 */
#ifndef CACHALOT_STATS_COUNTERS_STATS_H
#define CACHALOT_STATS_COUNTERS_STATS_H

#include "stats/counters/cache_row.h"
#include "stats/counters/lists.h"

enum stat_pool { SMALL_POOL, LARGE_POOL, STAT_POOLS };

/* One line of STAT_LIST: monotonic sums per pool; current is their difference. */
struct pool_stat {
    stat_value allocated[STAT_POOLS];
    stat_value freed[STAT_POOLS];
    stat_value peak[STAT_POOLS + 1]; /* the last is of `all` */
};

enum stat_kind {
#define X(name, unit) STAT_##name,
    STAT_LIST(X)
#undef X
        STAT_KINDS
};

enum counter_kind {
#define X(name, unit, meaning) COUNTER_##name,
    COUNTER_LIST(X)
#undef X
        COUNTER_KINDS
};

enum moment_kind {
#define X(name) MOMENT_##name,
    MOMENT_LIST(X)
#undef X
        MOMENT_KINDS
};

#define HISTOGRAM_BINS 48 /* bin b: requests of up to 2^b bytes and more than half of that */

static inline unsigned stat_bin_of(uint64_t bytes)
{
    unsigned bin = bytes <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(bytes - 1);
    return bin < HISTOGRAM_BINS ? bin : HISTOGRAM_BINS - 1;
}

/* A fold (stats_rows.c) changes two sums of seven kinds, four counters, and three numbers per bin. */
#define STAT_UNDOS (2 * 7 + 4 + 3 * CACHE_BINS)

/* Number `at` of the device's was `value`. */
struct stat_undo {
    stat_value at, value;
};

struct device_stats {
    stat_value sequence;
    struct pool_stat stat[STAT_KINDS];
    stat_value counter[COUNTER_KINDS];
    stat_value at_peak_reserved[MOMENT_KINDS];
    stat_value at_peak_allocated[MOMENT_KINDS];
    stat_value histogram_total[HISTOGRAM_BINS]; /* requests ever */
    stat_value histogram_live[HISTOGRAM_BINS];  /* blocks live */
    stat_value histogram_live_bytes[HISTOGRAM_BINS];
    stat_value undo_count;
    struct stat_undo undo[STAT_UNDOS];
};

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

/* The largest request that is served without new memory: from the largest reusable block, or of idle
 * mapped memory. */
uint64_t stats_largest_allocatable(const struct device_stats *stats);

/* Books a request of `bytes` in the histogram; `live` is +1 when handed out, -1 when freed. */
static inline void stats_histogram(struct device_stats *stats, uint64_t bytes, int live)
{
    unsigned bin = stat_bin_of(bytes);
    if (live > 0)
        stat_increase(&stats->histogram_total[bin], 1);
    stat_increase(&stats->histogram_live[bin], (uint64_t)(int64_t)live);
    stat_increase(&stats->histogram_live_bytes[bin], live > 0 ? bytes : -bytes);
}

/* A block of `size` bytes for a request of `requested`. */
static inline void stats_hand_out(struct device_stats *stats, enum stat_pool pool, uint64_t size,
                                  uint64_t requested)
{
    stats_add(stats, STAT_active_bytes, pool, size);
    stats_add(stats, STAT_active, pool, 1);
    stats_add(stats, STAT_requested_bytes, pool, requested);
    stats_add(stats, STAT_allocated_bytes, pool, size);
    stats_add(stats, STAT_allocation, pool, 1);
}

/* The same for the block that was taken back last, with nothing counted since: no peak can be
 * passed. */
static inline void stats_hand_out_again(struct device_stats *stats, enum stat_pool pool,
                                        uint64_t size, uint64_t requested)
{
    stat_increase(&stats->stat[STAT_active_bytes].allocated[pool], size);
    stat_increase(&stats->stat[STAT_active].allocated[pool], 1);
    stat_increase(&stats->stat[STAT_requested_bytes].allocated[pool], requested);
    stat_increase(&stats->stat[STAT_allocated_bytes].allocated[pool], size);
    stat_increase(&stats->stat[STAT_allocation].allocated[pool], 1);
}

/* Such a block is freed, and reusable at once. */
static inline void stats_take_back(struct device_stats *stats, enum stat_pool pool, uint64_t size,
                                   uint64_t requested)
{
    stats_subtract(stats, STAT_allocation, pool, 1);
    stats_subtract(stats, STAT_allocated_bytes, pool, size);
    stats_subtract(stats, STAT_requested_bytes, pool, requested);
    stats_subtract(stats, STAT_active, pool, 1);
    stats_subtract(stats, STAT_active_bytes, pool, size);
}

/* Copies the MOMENT_LIST if reserved or allocated bytes of `all` stand at their peak. */
void stats_note_moment(const struct device_stats *stats, stat_value *moment);
static inline void stats_note_peaks(struct device_stats *stats)
{
    if ((int64_t)(stats_current_all(stats, STAT_reserved_bytes) -
                  stat_get(&stats->at_peak_reserved[MOMENT_reserved_bytes])) > 0)
        stats_note_moment(stats, stats->at_peak_reserved);
    if ((int64_t)(stats_current_all(stats, STAT_allocated_bytes) -
                  stat_get(&stats->at_peak_allocated[MOMENT_allocated_bytes])) > 0)
        stats_note_moment(stats, stats->at_peak_allocated);
}

/* A reader's copy whose values belong together. Returns 0, or -1 when the row stayed odd, because its
 * writer died in a change: the copy is then sound, with half of that change. bounded: *tries, 0 at
 * first, bounds the waits of all copies that share it. */
int stats_copy(struct device_stats *to, const struct device_stats *from);
int stats_copy_bounded(struct device_stats *to, const struct device_stats *from, int *tries);

/* The same plus what thread caches counted for device `device`, in `count` rows. */
int stats_gather(struct device_stats *to, const struct device_stats *from,
                 const struct cache_row *rows, unsigned count, unsigned device);

/* Adds a thread's row and empties it. The lock is held. `bins` (bit i: bin i) are not 0. */
void stats_fold(struct device_stats *stats, struct cache_row *row, uint32_t bins);

#endif
