/* The numbers of one device as they lie in the live page; stats.h has the functions. */
#ifndef CACHALOT_STATS_COUNTERS_STATS_LAYOUT_H
#define CACHALOT_STATS_COUNTERS_STATS_LAYOUT_H

#include "stats/counters/cache_row.h"
#include "stats/counters/lists.h"
#include "stats/counters/stat_value.h"

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

/* A fold (stats_rows.c) changes two sums of seven kinds, four counters and three numbers a bin. */
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

#endif
