/* The report on one device: statistics, counters, fragmentation, histogram, PyTorch's flat names. */
#include "stats/report/parts.h"
#include "stats/report/value.h"

#include <stdio.h>

#define PARTS 3 /* small_pool, large_pool, all */

struct part {
    uint64_t current, peak, allocated, freed;
};

static const char *const part_names[PARTS] = {"small_pool", "large_pool", "all"};

static struct part part_of(const struct device_stats *stats, enum stat_kind kind, unsigned i)
{
    const struct pool_stat *stat = &stats->stat[kind];
    if (i == STAT_POOLS)
        return (struct part){
            .current = report_current_all(stats, kind),
            .peak = stat->peak[STAT_POOLS],
            .allocated = stat->allocated[SMALL_POOL] + stat->allocated[LARGE_POOL],
            .freed = stat->freed[SMALL_POOL] + stat->freed[LARGE_POOL],
        };
    return (struct part){
        .current = report_current(stats, kind, (enum stat_pool)i),
        .peak = stat->peak[i],
        .allocated = stat->allocated[i],
        .freed = stat->freed[i],
    };
}

static json_t *statistic(const struct device_stats *stats, enum stat_kind kind)
{
    json_t *object = json_object();
    for (unsigned i = 0; i < PARTS; i++) {
        struct part part = part_of(stats, kind, i);
        json_t *values = json_object();
        REPORT_NUMBER(values, &part, current);
        REPORT_NUMBER(values, &part, peak);
        REPORT_NUMBER(values, &part, allocated);
        REPORT_NUMBER(values, &part, freed);
        report_put(object, part_names[i], values);
    }
    return object;
}

static json_t *statistics(const struct device_stats *stats)
{
    json_t *object = json_object();
#define X(name, unit) report_put(object, #name, statistic(stats, STAT_##name));
    STAT_LIST(X)
#undef X
    return object;
}

static void put_counters(json_t *object, const struct device_stats *stats)
{
#define X(name, unit, meaning)                                                                     \
    report_put(object, #name, report_number(stats->counter[COUNTER_##name]));
    COUNTER_LIST(X)
#undef X
}

static json_t *one_less(uint64_t part, uint64_t whole)
{
    return report_ratio(part < whole ? whole - part : 0, whole);
}

static json_t *fragmentation(const uint64_t moment[MOMENT_KINDS])
{
    json_t *object = json_object();
    report_put(object, "utilization_ratio",
               report_ratio(moment[MOMENT_allocated_bytes], moment[MOMENT_reserved_bytes]));
    report_put(object, "external_ratio",
               one_less(moment[MOMENT_largest_allocatable_bytes], moment[MOMENT_reusable_bytes]));
    report_put(object, "internal_ratio",
               one_less(moment[MOMENT_requested_bytes], moment[MOMENT_active_bytes]));
#define X(name) report_put(object, #name, report_number(moment[MOMENT_##name]));
    MOMENT_LIST(X)
#undef X
    return object;
}

static json_t *fragmentation_now(const struct device_stats *stats)
{
    uint64_t moment[MOMENT_KINDS];
#define STAT_MOMENT(name) moment[MOMENT_##name] = report_current_all(stats, STAT_##name)
    STAT_MOMENT(requested_bytes);
    STAT_MOMENT(allocated_bytes);
    STAT_MOMENT(active_bytes);
    STAT_MOMENT(reserved_bytes);
    STAT_MOMENT(inactive_split_bytes);
#undef STAT_MOMENT
    moment[MOMENT_reusable_bytes] = stats->counter[COUNTER_reusable_bytes];
    moment[MOMENT_largest_allocatable_bytes] = stats->counter[COUNTER_largest_allocatable_bytes];
    return fragmentation(moment);
}

static json_t *fragmentation_at(const stat_value *noted)
{
    uint64_t moment[MOMENT_KINDS];
    for (unsigned i = 0; i < MOMENT_KINDS; i++)
        moment[i] = noted[i];
    return fragmentation(moment);
}

static json_t *size_histogram(const struct device_stats *stats)
{
    json_t *array = json_array();
    for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++) {
        if (stats->histogram_total[bin] == 0 && stats->histogram_live[bin] == 0)
            continue;
        json_t *entry = json_object();
        report_put(entry, "up_to_bytes", report_number(UINT64_C(1) << bin));
        report_put(entry, "requests", report_number(stats->histogram_total[bin]));
        report_put(entry, "live", report_number(report_not_negative(stats->histogram_live[bin])));
        report_put(entry, "live_bytes",
                   report_number(report_not_negative(stats->histogram_live_bytes[bin])));
        report_append(array, entry);
    }
    return array;
}

/* PyTorch's names, in PyTorch's order: `all` first. */
static void put_flat(json_t *object, const char *name, const struct device_stats *stats,
                     enum stat_kind kind)
{
    for (unsigned i = PARTS; i-- > 0;) {
        struct part part = part_of(stats, kind, i);
        const struct {
            const char *name;
            uint64_t value;
        } values[] = {{"current", part.current},
                      {"peak", part.peak},
                      {"allocated", part.allocated},
                      {"freed", part.freed}};
        for (unsigned v = 0; v < sizeof values / sizeof *values; v++) {
            char key[96];
            snprintf(key, sizeof key, "%s.%s.%s", name, part_names[i], values[v].name);
            report_put(object, key, report_number(values[v].value));
        }
    }
}

/* Keys that tools for torch.cuda.memory_stats() look up, and that have no counterpart here. */
static void put_absent(json_t *object)
{
    static const char *const keys[] = {"oversize_allocations.current",
                                       "oversize_allocations.peak",
                                       "oversize_allocations.allocated",
                                       "oversize_allocations.freed",
                                       "oversize_segments.current",
                                       "oversize_segments.peak",
                                       "oversize_segments.allocated",
                                       "oversize_segments.freed",
                                       "num_sync_all_streams"};
    for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++)
        report_put(object, keys[i], json_integer(0));
}

static json_t *memory_stats(const struct report_row *row)
{
    const struct device_stats *stats = &row->stats;
    json_t *object = json_object();
#define X(name, unit) put_flat(object, #name, stats, STAT_##name);
    STAT_LIST(X)
#undef X
    put_counters(object, stats);
    put_absent(object);
    uint64_t split = stats->counter[COUNTER_max_split_size_bytes];
    report_put(object, "max_split_size", split ? report_number(split) : json_integer(-1));
    return object;
}

json_t *report_device(const struct report_source *source, const struct report_row *row)
{
    const struct page_device *device = row->device;
    const struct device_stats *stats = &row->stats;
    json_t *object = json_object(), *counters = json_object();
    put_counters(counters, stats);
    report_put(object, "device", report_number(device->ordinal));
    report_put(object, "name", report_string_or_null(device->name));
    report_put(object, "uuid", report_string_or_null(device->uuid));
    report_put(object, "total_bytes",
               device->total_bytes ? report_number(device->total_bytes) : json_null());
    report_put(object, "torn", json_boolean(row->torn));
    report_put(object, "statistics", statistics(stats));
    report_put(object, "counters", counters);
    report_put(object, "fragmentation", fragmentation_now(stats));
    report_put(object, "at_peak_reserved", fragmentation_at(stats->at_peak_reserved));
    report_put(object, "at_peak_allocated", fragmentation_at(stats->at_peak_allocated));
    report_put(object, "size_histogram", size_histogram(stats));
    report_put(object, "memory_stats", memory_stats(row));
    report_put(object, "segments", report_segments(source, device->ordinal));
    return object;
}
