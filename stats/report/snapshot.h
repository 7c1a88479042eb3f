/* What the allocator hands to a report: all blocks at one moment. The allocator fills it in and
 * knows nothing else of reports. */
#ifndef CACHALOT_STATS_REPORT_SNAPSHOT_H
#define CACHALOT_STATS_REPORT_SNAPSHOT_H

#include <stddef.h>

#include "stats/page/layout.h"

/* One block: plain values, no pointers into the allocator. */
struct snapshot_block {
    uint64_t address, size_bytes, requested_bytes, segment_address, segment_bytes;
    uint32_t device; /* or SNAPSHOT_NO_DEVICE */
    uint8_t state;   /* enum snapshot_state */
    uint8_t pool;    /* enum stat_pool */
    uint8_t mapped;  /* its segment is a run of mapped memory, not one driver allocation */
    uint8_t kind;  /* of an uncached allocation: enum uncached_kind, + 1; 0: a block of the cache */
    uint32_t site; /* of its request (events/sites.h); 0: not known */
};
#define SNAPSHOT_NO_DEVICE UINT32_MAX
enum snapshot_state { SNAPSHOT_ALLOCATED, SNAPSHOT_PENDING, SNAPSHOT_REUSABLE };

struct snapshot {
    const struct page *page;             /* a private copy: nobody changes it meanwhile */
    const struct snapshot_block *blocks; /* by segment, then address, then
                                            uncached ones; NULL: not known (harvest) */
    size_t block_count;
    int with_segments; /* list segments and blocks in the document */
};

#endif
