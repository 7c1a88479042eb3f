#include "stats/report/source.h"

#include <stdlib.h>

int report_source_begin(struct report_source *source)
{
    source->rows = calloc((size_t)source->page->device_count + 1, sizeof *source->rows);
    if (source->rows == NULL)
        return -1;
    for (unsigned i = 0; i < source->page->device_count; i++) {
        const struct page_device *device = page_device(source->page, i);
        if (device->used == 0)
            continue;
        struct report_row *row = &source->rows[source->row_count++];
        row->device = device;
        row->stats = device->stats;
        row->torn = device->stats.sequence % 2 != 0;
    }
    return 0;
}

void report_source_end(struct report_source *source)
{
    free(source->rows);
}

int report_is_final(const struct report_source *source)
{
    return source->options->kind == REPORT_EXIT || source->options->kind == REPORT_HARVEST;
}

uint64_t report_current(const struct device_stats *stats, enum stat_kind kind, enum stat_pool pool)
{
    uint64_t allocated = stats->stat[kind].allocated[pool], freed = stats->stat[kind].freed[pool];
    return allocated > freed ? allocated - freed : 0;
}

uint64_t report_current_all(const struct device_stats *stats, enum stat_kind kind)
{
    return report_current(stats, kind, SMALL_POOL) + report_current(stats, kind, LARGE_POOL);
}
