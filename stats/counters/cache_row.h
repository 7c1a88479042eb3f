/* What one thread allocates and frees alone, without the allocator's lock: small blocks only, for
 * one device at a time. Lies in the live page beside the device's own numbers, to which it is
 * added when they are read, and folded into them under the lock (stats.h). */
#ifndef CACHALOT_STATS_COUNTERS_CACHE_ROW_H
#define CACHALOT_STATS_COUNTERS_CACHE_ROW_H

#include "stats/counters/stat_value.h"

#define CACHE_BINS 21 /* as in the histogram: requests of up to 2^20 bytes */

/* Numbers of one bin of the histogram; X(name, unit, meaning) */
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
    _Alignas(64) stat_value sequence; /* odd while its thread changes it */
    stat_value device;                /* row of the device, plus one; 0: not to be added to any */
    stat_value folding;               /* 1: being added for good; until that is done, undo it */
    stat_value allocated_bytes, freed_bytes;
    struct cache_bin bin[CACHE_BINS];
};

#endif
