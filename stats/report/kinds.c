/* The report on memory by kind: what the cache serves and what the driver gave, in one table. */
#include "stats/report/parts.h"
#include "stats/report/value.h"

#include <stdio.h>

/* The numbers of one kind. Those of the cache are added for memory that it serves. */
struct kind {
    uint64_t current, peak, total, allocations, frees, blocks, ended, unbooked;
    uint64_t live[HISTOGRAM_BINS], live_bytes[HISTOGRAM_BINS];
};

const char *report_kind_name(unsigned kind)
{
    static const char *const names[] = {
        "device",
#define X(name, kind) #kind,
        UNCACHED_LIST(X)
#undef X
    };
    return names[kind < sizeof names / sizeof *names ? kind : 0];
}

uint64_t report_not_negative(uint64_t value)
{
    return value > INT64_MAX ? 0 : value;
}

static struct kind uncached_kind(const struct page_uncached *row)
{
    struct kind kind = {.current = report_not_negative(row->bytes),
                        .peak = row->peak_bytes,
                        .total = row->total_bytes,
                        .allocations = row->allocated,
                        .frees = row->freed,
                        .ended = row->ended,
                        .unbooked = row->unbooked};
    for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++) {
        kind.live[bin] = report_not_negative(row->live[bin]);
        kind.live_bytes[bin] = report_not_negative(row->live_bytes[bin]);
        kind.blocks += kind.live[bin];
    }
    return kind;
}

static uint64_t ever(const struct device_stats *stats, enum stat_kind kind)
{
    return stats->stat[kind].allocated[SMALL_POOL] + stats->stat[kind].allocated[LARGE_POOL];
}

/* Blocks are as large as in `totals`; sizes in the histogram are those asked for. */
static void add_served(struct kind *kind, const struct device_stats *stats)
{
    uint64_t blocks = report_current_all(stats, STAT_allocation);
    kind->current += report_current_all(stats, STAT_allocated_bytes);
    kind->peak += stats->stat[STAT_allocated_bytes].peak[STAT_POOLS];
    kind->total += ever(stats, STAT_allocated_bytes);
    kind->allocations += ever(stats, STAT_allocation);
    kind->frees += ever(stats, STAT_allocation) - blocks;
    kind->blocks += blocks;
    for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++) {
        kind->live[bin] += report_not_negative(stats->histogram_live[bin]);
        kind->live_bytes[bin] += report_not_negative(stats->histogram_live_bytes[bin]);
    }
}

static json_t *histogram(const struct kind *kind)
{
    json_t *array = json_array();
    for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++) {
        if (kind->live[bin] == 0)
            continue;
        json_t *entry = json_object();
        report_put(entry, "up_to_bytes", report_number(UINT64_C(1) << bin));
        report_put(entry, "live", report_number(kind->live[bin]));
        report_put(entry, "live_bytes", report_number(kind->live_bytes[bin]));
        report_append(array, entry);
    }
    return array;
}

static json_t *kind_object(const struct report_source *source, const char *name,
                           const struct kind *kind)
{
    json_t *object = json_object();
    int final = report_is_final(source);
    report_put(object, "kind", json_string(name));
    report_put(object, "current_bytes", report_number(kind->current));
    report_put(object, "peak_bytes", report_number(kind->peak));
    report_put(object, "total_bytes", report_number(kind->total));
    report_put(object, "allocations", report_number(kind->allocations));
    report_put(object, "frees", report_number(kind->frees));
    report_put(object, "blocks", report_number(kind->blocks));
    report_put(object, "leaked_bytes", final ? report_number(kind->current) : json_null());
    report_put(object, "leaked_blocks", final ? report_number(kind->blocks) : json_null());
    report_put(object, "ended_with_context", report_number(kind->ended));
    report_put(object, "unbooked", report_number(kind->unbooked));
    report_put(object, "live_sizes", histogram(kind));
    return object;
}

json_t *report_kinds(const struct report_source *source)
{
    json_t *kinds = json_array();
    for (unsigned i = 0; i < UNCACHED_KINDS; i++) {
        struct kind kind = uncached_kind(&source->page->others[i]);
        for (unsigned row = 0; i == UNCACHED_device && row < source->row_count; row++)
            add_served(&kind, &source->rows[row].stats);
        report_append(kinds, kind_object(source, report_kind_name(i + 1), &kind));
    }
    return kinds;
}

static void put_host(json_t *object, const char *name, uint64_t current, uint64_t peak,
                     uint64_t allocated)
{
    const struct {
        const char *name;
        uint64_t value;
    } parts[] = {{"current", current},
                 {"peak", peak},
                 {"allocated", allocated},
                 {"freed", report_not_negative(allocated - current)}};
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.%s", name, parts[i].name);
        report_put(object, key, report_number(parts[i].value));
    }
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* PyTorch's names: *active* is what the program holds, *allocated* all memory from the driver, also
 * what is cached. The books count each block, the cache those that it serves. */
json_t *report_host_memory_stats(const struct report_source *source)
{
    const struct page_uncached *row = &source->page->others[UNCACHED_host];
    const struct device_stats *cache = &source->page->pinned;
    struct kind all = uncached_kind(row), served = {0};
    add_served(&served, cache);
    const struct pool_stat *segment = &cache->stat[STAT_segment];
    const struct pool_stat *reserved = &cache->stat[STAT_reserved_bytes];
    uint64_t blocks =
        report_not_negative(all.blocks - served.blocks) + report_current_all(cache, STAT_segment);
    uint64_t bytes =
        report_not_negative(all.current - report_current_all(cache, STAT_requested_bytes)) +
        report_current_all(cache, STAT_reserved_bytes);
    uint64_t made = report_not_negative(all.allocations - served.allocations);
    uint64_t freed = report_not_negative(all.frees - served.frees);
    uint64_t most_blocks = served.allocations ? segment->peak[STAT_POOLS] : row->peak_blocks;
    uint64_t total = report_not_negative(all.total - ever(cache, STAT_requested_bytes));
    json_t *object = json_object();
    put_host(object, "allocations", blocks, most(most_blocks, blocks),
             made + ever(cache, STAT_segment));
    put_host(object, "allocated_bytes", bytes,
             most(most(all.peak, reserved->peak[STAT_POOLS]), bytes),
             total + ever(cache, STAT_reserved_bytes));
    put_host(object, "active_requests", all.blocks, row->peak_blocks, all.allocations);
    put_host(object, "active_bytes", all.current, all.peak, all.total);
    report_put(object, "num_host_alloc",
               report_number(made + cache->counter[COUNTER_num_device_alloc]));
    report_put(object, "num_host_free",
               report_number(freed + cache->counter[COUNTER_num_device_free]));
    return object;
}
