/* The counts of one thread cache: small blocks that a thread allocates and frees without the
 * allocator's lock, on one device at a time. The rows lie in the live page. A reader adds them to
 * the device's own numbers; the lock's holder folds them into those (stats.h). */
#ifndef CACHALOT_STATS_COUNTERS_CACHE_ROW_H
#define CACHALOT_STATS_COUNTERS_CACHE_ROW_H

#include "stats/counters/stat_value.h"

#define CACHE_BINS 21 /* the first bins of the histogram: requests of up to 2^20 bytes */

/* The numbers of one bin.  X(name, unit, meaning) */
#define CACHE_LIST(X)                                                                              \
    X(allocated, "count", "requests served")                                                       \
    X(freed, "count", "blocks taken back")                                                         \
    X(allocated_requested, "bytes", "bytes of those requests")                                     \
    X(freed_requested, "bytes", "bytes of the requests of those blocks")

struct cache_bin {
#define X(name, unit, meaning) stat_value name;
    CACHE_LIST(X)
#undef X
};

struct cache_row {
    _Alignas(64) stat_value sequence; /* odd while the row's thread changes it */
    stat_value device;                /* row of the device, plus one; 0: readers add it to none */
    stat_value folding;               /* 1: a fold is under way; readers undo it */
    stat_value allocated_bytes, freed_bytes;
    struct cache_bin bin[CACHE_BINS];
};

#endif
