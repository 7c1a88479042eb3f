/* Adding the rows of thread caches to the numbers of their device.
 *
 * A fold is many stores, and the process may be killed between any two of them. Nothing may be lost
 * or counted twice then. Therefore the fold notes each number before it changes it, and a reader of
 * a row that is `folding` puts the device's numbers back. One store ends the fold: the row belongs
 * to no device, readers do not add it, and the fold can empty it. Peaks need no undo: the value that
 * they rise to was reached.
 */
#include "stats/counters/stats.h"

#include <stddef.h>

#include "stats/os/pause.h"

#define NUMBERS (sizeof(struct cache_row) / sizeof(stat_value))
#define ALL_BINS ((UINT32_C(1) << CACHE_BINS) - 1)

/* A fold under way. `undos` mirrors stats->undo_count, which saves reading it for each number. */
struct fold {
    struct device_stats *stats;
    uint64_t undos;
};

static inline __attribute__((always_inline)) void increase(struct fold *fold, stat_value *number,
                                                           uint64_t n)
{
    struct device_stats *stats = fold->stats;
    uint64_t before = stat_get(number);
    stat_set(&stats->undo[fold->undos].at, (uint64_t)(number - (stat_value *)stats));
    stat_set(&stats->undo[fold->undos].value, before);
    atomic_store_explicit(&stats->undo_count, ++fold->undos, memory_order_release);
    atomic_store_explicit(number, before + n, memory_order_release);
}

static void undo(struct device_stats *stats)
{
    uint64_t count = stat_get(&stats->undo_count);
    for (uint64_t i = count < STAT_UNDOS ? count : STAT_UNDOS; i-- > 0;) {
        uint64_t at = stat_get(&stats->undo[i].at);
        if (at < offsetof(struct device_stats, undo_count) / sizeof(stat_value))
            stat_set((stat_value *)stats + at, stat_get(&stats->undo[i].value));
    }
}

/* allocated, freed: counts of a thread cache, which takes its blocks from reusable memory. */
static inline __attribute__((always_inline)) void add(struct fold *fold, enum stat_kind kind,
                                                      uint64_t allocated, uint64_t freed)
{
    struct device_stats *stats = fold->stats;
    struct pool_stat *stat = &stats->stat[kind];
    increase(fold, &stat->freed[SMALL_POOL], freed);
    increase(fold, &stat->allocated[SMALL_POOL], allocated);
    stat_raise_to(&stat->peak[SMALL_POOL], stats_current(stats, kind, SMALL_POOL));
    stat_raise_to(&stat->peak[STAT_POOLS], stats_current_all(stats, kind));
}

static inline void add_row(struct device_stats *stats, const struct cache_row *row, uint32_t bins)
{
    struct fold fold = {stats, 0};
    uint64_t allocated = 0, freed = 0, requested = 0, requested_freed = 0;
    uint64_t bytes = stat_get(&row->allocated_bytes), bytes_freed = stat_get(&row->freed_bytes);
    for (; bins; bins &= bins - 1) {
        unsigned i = (unsigned)__builtin_ctz(bins);
        const struct cache_bin *bin = &row->bin[i];
        uint64_t in = stat_get(&bin->allocated), out = stat_get(&bin->freed);
        uint64_t asked = stat_get(&bin->allocated_requested);
        uint64_t asked_freed = stat_get(&bin->freed_requested);
        allocated += in;
        freed += out;
        requested += asked;
        requested_freed += asked_freed;
        increase(&fold, &stats->histogram_total[i], in);
        increase(&fold, &stats->histogram_live[i], in - out);
        increase(&fold, &stats->histogram_live_bytes[i], asked - asked_freed);
    }
    add(&fold, STAT_allocation, allocated, freed);
    add(&fold, STAT_requested_bytes, requested, requested_freed);
    add(&fold, STAT_allocated_bytes, bytes, bytes_freed);
    add(&fold, STAT_active, allocated, freed);
    add(&fold, STAT_active_bytes, bytes, bytes_freed);
    add(&fold, STAT_inactive_split, freed, allocated);
    add(&fold, STAT_inactive_split_bytes, bytes_freed, bytes);
    increase(&fold, &stats->counter[COUNTER_num_hits], allocated);
    increase(&fold, &stats->counter[COUNTER_num_thread_hits], allocated);
    increase(&fold, &stats->counter[COUNTER_num_lane_frees], freed);
    increase(&fold, &stats->counter[COUNTER_reusable_bytes], bytes_freed - bytes);
}

void stats_fold(struct device_stats *stats, struct cache_row *row, uint32_t bins)
{
    uint64_t device = stat_get(&row->device);
    stat_set(&stats->undo_count, 0);
    atomic_store_explicit(&row->folding, 1, memory_order_release);
    add_row(stats, row, bins);
    atomic_store_explicit(&row->device, 0, memory_order_release);
    atomic_thread_fence(memory_order_release);
    stat_set(&row->allocated_bytes, 0);
    stat_set(&row->freed_bytes, 0);
    for (; bins; bins &= bins - 1) {
#define X(name, unit, meaning) stat_set(&row->bin[__builtin_ctz(bins)].name, 0);
        CACHE_LIST(X)
#undef X
    }
    stat_set(&row->folding, 0);
    atomic_store_explicit(&row->device, device, memory_order_release);
}

/* Returns -1 when the row stayed odd. */
static int copy_row(struct cache_row *to, const struct cache_row *from, int *tries)
{
    const stat_value *source = (const stat_value *)from;
    stat_value *target = (stat_value *)to;
    for (;;) {
        uint64_t before = atomic_load_explicit(&from->sequence, memory_order_acquire);
        for (size_t i = 0; i < NUMBERS; i++)
            stat_set(&target[i], stat_get(&source[i]));
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && stat_get(&from->sequence) == before)
            return 0;
        if (!pause_between((*tries)++))
            return -1;
    }
}

int stats_gather(struct device_stats *to, const struct device_stats *from,
                 const struct cache_row *rows, unsigned count, unsigned device)
{
    int tries = 0;
    for (;;) {
        int code = stats_copy_bounded(to, from, &tries);
        uint64_t sequence = stat_get(&to->sequence);
        for (unsigned i = 0; i < count; i++)
            if (stat_get(&rows[i].device) == device + 1 && stat_get(&rows[i].folding))
                undo(to);
        for (unsigned i = 0; i < count; i++)
            if (stat_get(&rows[i].device) == device + 1) {
                struct cache_row row;
                code |= copy_row(&row, &rows[i], &tries);
                stat_set(&to->undo_count, 0);
                add_row(to, &row, ALL_BINS);
            }
        atomic_thread_fence(memory_order_acquire);
        if (stat_get(&from->sequence) == sequence)
            return code;
        if (!pause_between(tries++))
            return -1;
    }
}
