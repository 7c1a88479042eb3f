/* What a device has allocated and reserved: a look that is much cheaper than a copy of its numbers. */
#ifndef CACHALOT_STATS_COUNTERS_LEVELS_H
#define CACHALOT_STATS_COUNTERS_LEVELS_H

#include "stats/counters/stats.h"

/* Bytes of `all`: now, and their peaks so far. */
struct stats_levels {
    uint64_t allocated, reserved, peak_allocated, peak_reserved;
};

/* With what thread caches counted for device `device`, in `count` rows. Returns 0, or -1 when the row
 * changed at each try. */
int stats_levels(struct stats_levels *to, const struct device_stats *from,
                 const struct cache_row *rows, unsigned count, unsigned device);

#endif
