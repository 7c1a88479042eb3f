/* The parts of the report's document; each function makes the value of one top-level key. */
#ifndef CACHALOT_STATS_REPORT_PARTS_H
#define CACHALOT_STATS_REPORT_PARTS_H

#include <jansson.h>

#include "stats/output/report.h"

/* One used device and a copy of its numbers that belong together; torn: its writer died, or did
 * not pause. */
struct report_row {
    const struct page_device *device;
    struct device_stats stats;
    int torn;
};

/* All that a report is made of. */
struct report_source {
    const struct snapshot *snapshot;
    const struct report_options *options;
    const struct page *page;
    struct report_row *rows;
    unsigned row_count;
    uint32_t site_index[SITES], site_count; /* by place: its number in the report, + 1 */
};

/* Is what still lives now a leak? Only once the process has ended. */
int report_is_final(const struct report_source *source);

/* Allocated less freed; 0 where a damaged page would make it negative. */
uint64_t report_current(const struct device_stats *stats, enum stat_kind kind, enum stat_pool pool);
uint64_t report_current_all(const struct device_stats *stats, enum stat_kind kind);

json_t *report_config(const struct report_source *source);
json_t *report_times(const struct report_source *source);
json_t *report_process(const struct report_source *source);
json_t *report_exit(const struct report_source *source);
json_t *report_coverage(const struct report_source *source);
json_t *report_totals(const struct report_source *source);
json_t *report_device(const struct report_source *source, const struct report_row *row);
json_t *report_segments(const struct report_source *source, uint64_t device);
json_t *report_others(const struct report_source *source);
json_t *report_leaks(const struct report_source *source);
json_t *report_oom_events(const struct report_source *source);
json_t *report_warnings(const struct report_source *source);

/* Sites: numbered first, then put into the document; what a place of the table is there. */
void report_number_sites(struct report_source *source);
void report_put_sites(json_t *root, const struct report_source *source);
uint32_t report_site(const struct report_source *source, uint64_t place);
json_t *report_site_or_null(const struct report_source *source, uint64_t place);

/* Adds the key `events`, if the page has any, to a document's text, which it may move; NULL when
 * there was no memory for it. */
char *report_add_events(char *text, const struct report_source *source);

#endif
