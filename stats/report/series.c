/* The report on device memory over time. It is written as text, without jansson: each point is four
 * numbers, and there may be SERIES_MOST times SERIES_POINTS of them. */
#include "stats/report/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW_BYTES 96 /* more than the longest row */
#define MOST (UINT64_C(1) << 53)
#define HEAD_BYTES 128 /* and than the rest of an entry */

struct writer {
    char *to;
    const char *separator;
    const struct report_row *row;
    struct series_look last; /* not written yet */
    uint64_t count, most_allocated, most_reserved;
};

static void write_last(struct writer *w)
{
    const struct series_look *p = &w->last;
    char free[24] = "null";
    if (p->free != UINT64_MAX)
        snprintf(free, sizeof free, "%" PRIu64, p->free);
    w->to += sprintf(w->to, "%s\n        [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %s]", w->separator,
                     p->time_ns / 1000000, p->allocated, p->reserved, free);
    w->separator = ",";
}

static void take_point(void *context, const struct series_look *point)
{
    struct writer *w = context;
    if (w->count++)
        write_last(w);
    w->last = *point;
    if (point->allocated > w->most_allocated)
        w->most_allocated = point->allocated;
    if (point->reserved > w->most_reserved)
        w->most_reserved = point->reserved;
}

/* A peak that no look has found yet is of the time since the last one. */
static void raise_last(struct writer *w)
{
    const struct pool_stat *stat = w->row->stats.stat;
    uint64_t allocated = stat[STAT_allocated_bytes].peak[STAT_POOLS];
    uint64_t reserved = stat[STAT_reserved_bytes].peak[STAT_POOLS];
    if (!w->count)
        w->last = (struct series_look){.free = UINT64_MAX};
    if (allocated > w->most_allocated && allocated < MOST)
        w->last.allocated = allocated;
    if (reserved > w->most_reserved && reserved < MOST)
        w->last.reserved = reserved;
}

/* series NULL: the process was killed before it looked at the device. */
static char *write_series(char *to, const struct report_row *row, const struct series *series)
{
    struct writer w = {.separator = "", .row = row};
    w.to = to + sprintf(to, "{\n      \"device\": %" PRIu64 ",\n      \"points\": [",
                        row->device->ordinal & INT32_MAX);
    if (series)
        series_walk(series, take_point, &w);
    raise_last(&w);
    write_last(&w);
    return w.to + sprintf(w.to, "\n      ]\n    }");
}

static const struct series *series_of(const struct report_source *source,
                                      const struct report_row *row)
{
    for (unsigned i = 0; i < source->page->series_count; i++) {
        const struct series *series = page_series(source->page, i);
        uint64_t device = stat_get(&series->device);
        if (device && device <= source->page->device_count &&
            page_device(source->page, (unsigned)device - 1) == row->device)
            return series;
    }
    return NULL;
}

char *report_add_series(char *text, const struct report_source *source)
{
    size_t length = text ? strlen(text) : 0;
    if (length < 3)
        return text;
    size_t most = (size_t)source->page->series_count * (SERIES_POINTS + 1) * ROW_BYTES;
    char *longer = realloc(text, length + most + (source->row_count + 1) * HEAD_BYTES);
    if (!longer) {
        free(text);
        return NULL;
    }
    /* The text replaces the last newline and brace. */
    char *to = longer + length - 2;
    unsigned missing = source->page->series_count, written = 0;
    for (unsigned i = 0; i < source->row_count; i++)
        missing -= missing && series_of(source, &source->rows[i]);
    to += sprintf(to, ",\n  \"series\": [");
    for (unsigned i = 0; i < source->row_count; i++) {
        const struct series *series = series_of(source, &source->rows[i]);
        if (!series && !missing)
            continue;
        missing -= !series;
        to += sprintf(to, "%s\n    ", written++ ? "," : "");
        to = write_series(to, &source->rows[i], series);
    }
    sprintf(to, written ? "\n  ]\n}" : "]\n}");
    return longer;
}
