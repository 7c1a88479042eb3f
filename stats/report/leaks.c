/* The report on leaks: blocks that were never freed, by size; without a snapshot, by bins of the
 * histogram. */
#include "stats/report/parts.h"
#include "stats/report/value.h"

#include <stdlib.h>

#define LEAK_GROUPS 100
#define LEAK_EXAMPLES 8

/* The blocks of one size on one device, those of one bin of the histogram, or the rest. */
struct leak {
    uint64_t requested_bytes, up_to_bytes; /* 0: null */
    uint64_t total_bytes, allocated_bytes, count, device;
    const struct snapshot_block *const *examples;
    int is_rest, allocated_unknown;
    uint32_t site; /* as in snapshot_block; 0 if none is known */
    unsigned kind; /* as in snapshot_block */
};

static json_t *leak_object(const struct report_source *source, const struct leak *leak)
{
    json_t *object = json_object(), *addresses = json_array();
    int sized = !leak->is_rest && leak->up_to_bytes == 0;
    int has_device = !leak->is_rest && leak->device != SNAPSHOT_NO_DEVICE;
    report_put(object, "kind",
               leak->is_rest ? json_null() : json_string(report_kind_name(leak->kind)));
    report_put(object, "device", has_device ? report_number(leak->device) : json_null());
    report_put(object, "requested_bytes",
               sized ? report_number(leak->requested_bytes) : json_null());
    report_put(object, "up_to_bytes",
               leak->up_to_bytes ? report_number(leak->up_to_bytes) : json_null());
    report_put(object, "count", report_number(leak->count));
    report_put(object, "total_requested_bytes", report_number(leak->total_bytes));
    report_put(object, "allocated_bytes",
               leak->allocated_unknown ? json_null() : report_number(leak->allocated_bytes));
    for (uint64_t i = 0; leak->examples && i < leak->count && i < LEAK_EXAMPLES; i++)
        report_append(addresses, report_address(leak->examples[i]->address));
    report_put(object, "addresses", addresses);
    report_put(object, "rest", json_boolean(leak->is_rest));
    if (report_sites_are_exact(source))
        report_put(object, "site", report_site_or_null(source, leak->site));
    return object;
}

static int by_total(const void *left, const void *right)
{
    const struct leak *a = left, *b = right;
    if (a->total_bytes != b->total_bytes)
        return a->total_bytes < b->total_bytes ? 1 : -1;
    return (a->count < b->count) - (a->count > b->count);
}

/* The largest first; what comes after LEAK_GROUPS in one group. */
static json_t *leak_array(const struct report_source *source, struct leak *leaks, size_t count)
{
    json_t *array = json_array();
    struct leak rest = {.is_rest = 1};
    if (count > 0)
        qsort(leaks, count, sizeof *leaks, by_total);
    for (size_t i = 0; i < count; i++) {
        if (i < LEAK_GROUPS) {
            report_append(array, leak_object(source, &leaks[i]));
            continue;
        }
        rest.count += leaks[i].count;
        rest.total_bytes += leaks[i].total_bytes;
        rest.allocated_bytes += leaks[i].allocated_bytes;
        rest.allocated_unknown |= leaks[i].allocated_unknown;
    }
    if (rest.count > 0)
        report_append(array, leak_object(source, &rest));
    return array;
}

/* The leaks of one bin; returns how many groups that makes. */
static size_t leak_of_bin(struct leak *leak, uint64_t device, unsigned kind, unsigned bin,
                          uint64_t live, uint64_t bytes)
{
    *leak = (struct leak){.device = device,
                          .kind = kind,
                          .up_to_bytes = UINT64_C(1) << bin,
                          .count = live,
                          .total_bytes = bytes,
                          .allocated_unknown = 1};
    return report_not_negative(live) != 0;
}

static json_t *leaks_of_histogram(const struct report_source *source)
{
    size_t count = 0, most = ((size_t)source->row_count + UNCACHED_KINDS) * HISTOGRAM_BINS;
    struct leak *leaks = calloc(most + 1, sizeof *leaks);
    if (leaks == NULL)
        return NULL;
    for (unsigned i = 0; i < source->row_count; i++)
        for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++) {
            const struct device_stats *stats = &source->rows[i].stats;
            count += leak_of_bin(&leaks[count], source->rows[i].device->ordinal, 0, bin,
                                 stats->histogram_live[bin], stats->histogram_live_bytes[bin]);
        }
    for (unsigned kind = 0; kind < UNCACHED_KINDS; kind++)
        for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++) {
            const struct page_uncached *row = &source->page->others[kind];
            count += leak_of_bin(&leaks[count], SNAPSHOT_NO_DEVICE, kind + 1, bin, row->live[bin],
                                 row->live_bytes[bin]);
        }
    json_t *array = leak_array(source, leaks, count);
    free(leaks);
    return array;
}

static int by_size(const void *left, const void *right)
{
    const struct snapshot_block *a = *(const struct snapshot_block *const *)left;
    const struct snapshot_block *b = *(const struct snapshot_block *const *)right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->requested_bytes != b->requested_bytes)
        return a->requested_bytes < b->requested_bytes ? -1 : 1;
    if (a->site != b->site)
        return a->site < b->site ? -1 : 1;
    return (a->address > b->address) - (a->address < b->address);
}

/* Groups `count` live blocks that are in the order of by_size. */
static size_t group(struct leak *leaks, const struct snapshot_block **live, size_t count)
{
    size_t groups = 0;
    for (size_t i = 0; i < count; i++) {
        struct leak *leak = &leaks[groups];
        if (groups == 0 || leak[-1].kind != live[i]->kind || leak[-1].device != live[i]->device ||
            leak[-1].requested_bytes != live[i]->requested_bytes || leak[-1].site != live[i]->site)
            leaks[groups++] = (struct leak){.device = live[i]->device,
                                            .kind = live[i]->kind,
                                            .requested_bytes = live[i]->requested_bytes,
                                            .site = live[i]->site,
                                            .examples = &live[i]};
        leak = &leaks[groups - 1];
        leak->count++;
        leak->total_bytes += live[i]->requested_bytes;
        leak->allocated_bytes += live[i]->size_bytes;
    }
    return groups;
}

static json_t *leaks_of_blocks(const struct report_source *source)
{
    const struct snapshot *snapshot = source->snapshot;
    size_t count = 0;
    const struct snapshot_block **live = calloc(snapshot->block_count + 1, sizeof *live);
    struct leak *leaks = calloc(snapshot->block_count + 1, sizeof *leaks);
    json_t *array = NULL;
    if (live != NULL && leaks != NULL) {
        for (size_t i = 0; i < snapshot->block_count; i++)
            if (snapshot->blocks[i].state == SNAPSHOT_ALLOCATED)
                live[count++] = &snapshot->blocks[i];
        qsort(live, count, sizeof(struct snapshot_block *), by_size);
        array = leak_array(source, leaks, group(leaks, live, count));
    }
    free(live);
    free(leaks);
    return array;
}

json_t *report_leaks(const struct report_source *source)
{
    if (!report_is_final(source))
        return json_array();
    if (source->snapshot->blocks == NULL)
        return leaks_of_histogram(source);
    return leaks_of_blocks(source);
}
