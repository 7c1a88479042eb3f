/* The statistics of one device, and how they are changed and read.
 *
 * Every number is a relaxed atomic with one writer at a time (the holder of the allocator's lock),
 * so a reader in another thread or process never sees half a value; a row's `sequence` (odd while
 * it is being changed) tells it that the values belong together. Changes are ordered so that
 * allocated <= active <= reserved holds after each store: a row left odd by a process that was
 * killed is still sound.
 */
#ifndef CACHALOT_STATS_COUNTERS_STATS_H
#define CACHALOT_STATS_COUNTERS_STATS_H

#include "stats/counters/cache_row.h"
#include "stats/counters/stats_change.h"

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

/* The same when such a block was taken back just now, and nothing has been counted since: no peak
 * is passed. */
static inline void stats_hand_out_again(struct device_stats *stats, enum stat_pool pool,
                                        uint64_t size, uint64_t requested)
{
    stat_increase(&stats->stat[STAT_active_bytes].allocated[pool], size);
    stat_increase(&stats->stat[STAT_active].allocated[pool], 1);
    stat_increase(&stats->stat[STAT_requested_bytes].allocated[pool], requested);
    stat_increase(&stats->stat[STAT_allocated_bytes].allocated[pool], size);
    stat_increase(&stats->stat[STAT_allocation].allocated[pool], 1);
}

/* It is freed, and reusable at once. */
static inline void stats_take_back(struct device_stats *stats, enum stat_pool pool, uint64_t size,
                                   uint64_t requested)
{
    stats_subtract(stats, STAT_allocation, pool, 1);
    stats_subtract(stats, STAT_allocated_bytes, pool, size);
    stats_subtract(stats, STAT_requested_bytes, pool, requested);
    stats_subtract(stats, STAT_active, pool, 1);
    stats_subtract(stats, STAT_active_bytes, pool, size);
}

/* Copies the moment's ingredients if `all` stands at its peak of reserved or allocated bytes. */
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

/* A copy whose values belong together, as a reader takes it from a live page; returns 0, or -1 when
 * the row stayed odd (its writer died in the middle of one change): the copy is then sound, but the
 * change half booked. */
int stats_copy(struct device_stats *to, const struct device_stats *from);

/* The same with what threads counted alone for this device, the `device`-th, in `count` rows. */
int stats_gather(struct device_stats *to, const struct device_stats *from,
                 const struct cache_row *rows, unsigned count, unsigned device);

/* Adds a thread's row, which is then 0, under the lock; `bins` (bit i: bin i) are not 0. */
void stats_fold(struct device_stats *stats, struct cache_row *row, uint32_t bins);

#endif
