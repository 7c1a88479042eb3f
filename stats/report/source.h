/* What a report is made from: the page, the snapshot, and a copy of each device's numbers. */
#ifndef CACHALOT_STATS_REPORT_SOURCE_H
#define CACHALOT_STATS_REPORT_SOURCE_H

#include "stats/report/options.h"
#include "stats/report/snapshot.h"

/* A device that was used, and a copy of its numbers that belong together. torn: they do not, because
 * their writer died in a change or made no pause. */
struct report_row {
    const struct page_device *device;
    struct device_stats stats;
    int torn;
};

/* All that a report is made from. */
struct report_source {
    const struct snapshot *snapshot;
    const struct report_options *options;
    const struct page *page;
    struct report_row *rows;
    unsigned row_count;
    uint32_t site_index[SITES], site_count; /* by place: its number in the report, + 1 */
};

/* Copies the numbers of all used devices. Returns -1 when there is no memory for them. The end
 * frees them. */
int report_source_begin(struct report_source *source);
void report_source_end(struct report_source *source);

/* Whether the process has ended, so that a live block is a leak. */
int report_is_final(const struct report_source *source);

/* Allocated less freed; 0 where a damaged page would make it negative. */
uint64_t report_current(const struct device_stats *stats, enum stat_kind kind, enum stat_pool pool);
uint64_t report_current_all(const struct device_stats *stats, enum stat_kind kind);

#endif
