/* The statistics of one device, and how they are changed and read.
 *
 * Every number is a relaxed atomic with one writer at a time (the holder of the allocator's lock),
 * so a reader in another thread or process never sees half a value; a row's `sequence` (odd while
 * it is being changed) tells it that the values belong together. Changes are ordered so that
 * allocated <= active <= reserved holds after each store: a row left odd by a process that was
 * killed is still sound.
 */
#ifndef CACHALOT_STATS_STATS_H
#define CACHALOT_STATS_STATS_H

#include "stats/stats_layout.h"

/* One more of what only the calling thread counts. */
static inline void stat_count_alone(stat_value *value)
{
    uint64_t now = atomic_load_explicit(value, memory_order_relaxed);
    atomic_store_explicit(value, now + 1, memory_order_relaxed);
}

/* All writers hold the allocator's lock. */
void stats_begin(struct device_stats *stats);
void stats_end(struct device_stats *stats);
void stats_add(struct device_stats *stats, enum stat_kind kind, enum stat_pool pool, uint64_t n);
void stats_subtract(struct device_stats *stats, enum stat_kind kind, enum stat_pool pool,
                    uint64_t n);
void stats_count(struct device_stats *stats, enum counter_kind kind, uint64_t n);
void stats_set(struct device_stats *stats, enum counter_kind kind, uint64_t value);

/* Books a request of `bytes` in the histogram; `live` is +1 when handed out, -1 when freed. */
void stats_histogram(struct device_stats *stats, uint64_t bytes, int live);

/* Copies the moment's ingredients if `all` stands at its peak of reserved or allocated bytes. */
void stats_note_peaks(struct device_stats *stats);

uint64_t stats_get(const struct device_stats *stats, enum counter_kind kind);
uint64_t stats_current(const struct device_stats *stats, enum stat_kind kind, enum stat_pool pool);
uint64_t stats_current_all(const struct device_stats *stats, enum stat_kind kind);

/* A copy whose values belong together, as a reader takes it from a live page; returns 0, or -1 when
 * the row stayed odd (its writer died in the middle of one change): the copy is then sound, but the
 * change half booked. */
int stats_copy(struct device_stats *to, const struct device_stats *from);

#endif
