/* The report's totals over all devices, uncached allocations, and warnings. */
#include "stats/report/parts.h"
#include "stats/report/value.h"

#include <string.h>

static uint64_t sum_current(const struct report_source *source, enum stat_kind kind)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < source->row_count; i++)
        sum += report_current_all(&source->rows[i].stats, kind);
    return sum;
}

static uint64_t sum_peak(const struct report_source *source, enum stat_kind kind)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < source->row_count; i++)
        sum += source->rows[i].stats.stat[kind].peak[STAT_POOLS];
    return sum;
}

static uint64_t sum_allocated(const struct report_source *source, enum stat_kind kind)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < source->row_count; i++)
        for (unsigned pool = 0; pool < STAT_POOLS; pool++)
            sum += source->rows[i].stats.stat[kind].allocated[pool];
    return sum;
}

static uint64_t sum_counter(const struct report_source *source, enum counter_kind kind)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < source->row_count; i++)
        sum += source->rows[i].stats.counter[kind];
    return sum;
}

static int is_written(const struct page_warning *warning)
{
    return warning->count != 0 && warning->count != WARNING_BEGUN;
}

static uint64_t sum_warnings(const struct page *page)
{
    uint64_t sum = page->warnings_lost;
    for (unsigned i = 0; i < PAGE_WARNINGS; i++)
        if (is_written(&page->warning[i]))
            sum += page->warning[i].count;
    return sum;
}

static void put_requests(json_t *totals, const struct report_source *source)
{
    uint64_t requests = sum_allocated(source, STAT_allocation);
    uint64_t live = sum_current(source, STAT_allocation);
    uint64_t hits = sum_counter(source, COUNTER_num_hits);
    report_put(totals, "requests", report_number(requests));
    report_put(totals, "frees", report_number(requests - live));
    report_put(totals, "hits", report_number(hits));
    report_put(totals, "hit_ratio", report_ratio(hits, requests));
}

static void put_bytes(json_t *totals, const struct report_source *source)
{
#define BYTES(name)                                                                                \
    report_put(totals, #name, report_number(sum_current(source, STAT_##name)));                    \
    report_put(totals, "peak_" #name, report_number(sum_peak(source, STAT_##name)))
    BYTES(requested_bytes);
    BYTES(allocated_bytes);
    BYTES(active_bytes);
    BYTES(reserved_bytes);
#undef BYTES
    report_put(totals, "peak_utilization_ratio",
               report_ratio(sum_peak(source, STAT_allocated_bytes),
                            sum_peak(source, STAT_reserved_bytes)));
}

/* null while the process runs: its live blocks are not leaks yet. */
static void put_leaked(json_t *totals, const struct report_source *source)
{
    int final = report_is_final(source);
    uint64_t bytes = sum_current(source, STAT_allocated_bytes);
    uint64_t blocks = sum_current(source, STAT_allocation);
    report_put(totals, "leaked_bytes", final ? report_number(bytes) : json_null());
    report_put(totals, "leaked_blocks", final ? report_number(blocks) : json_null());
}

json_t *report_totals(const struct report_source *source)
{
    json_t *totals = json_object();
    put_requests(totals, source);
    put_bytes(totals, source);
    put_leaked(totals, source);
#define COUNTER(key, name)                                                                         \
    report_put(totals, key, report_number(sum_counter(source, COUNTER_##name)))
    COUNTER("ooms", num_ooms);
    COUNTER("alloc_retries", num_alloc_retries);
    COUNTER("device_alloc", num_device_alloc);
    COUNTER("device_free", num_device_free);
    COUNTER("fences", num_fences);
    COUNTER("fence_waits", num_fence_waits);
    COUNTER("fence_wait_ns", fence_wait_ns);
    COUNTER("late_frees", num_late_frees);
    COUNTER("double_frees", num_double_frees);
#undef COUNTER
    report_put(totals, "faults", report_number(report_fault_count(source->page)));
    report_put(totals, "warnings", report_number(sum_warnings(source->page)));
    report_put(totals, "devices", report_number(source->row_count));
    return totals;
}

json_t *report_others(const struct report_source *source)
{
    json_t *others = json_object();
#define X(name, kind)                                                                              \
    {                                                                                              \
        const struct page_uncached *other = &source->page->others[UNCACHED_##name];                \
        json_t *entry = json_object();                                                             \
        REPORT_NUMBER(entry, other, bytes);                                                        \
        REPORT_NUMBER(entry, other, peak_bytes);                                                   \
        REPORT_NUMBER(entry, other, allocated);                                                    \
        REPORT_NUMBER(entry, other, freed);                                                        \
        report_put(others, #name, entry);                                                          \
    }
    UNCACHED_LIST(X)
#undef X
    return others;
}

/* The count of warning `i`'s text in all slots; 0 if an earlier slot has that text. */
static uint64_t warning_count(const struct page *page, unsigned i)
{
    const struct page_warning *warning = page->warning;
    uint64_t count = warning[i].count;
    for (unsigned j = 0; j < PAGE_WARNINGS; j++) {
        if (j == i || !is_written(&warning[j]) || strcmp(warning[i].text, warning[j].text) != 0)
            continue;
        if (j < i)
            return 0;
        count += warning[j].count;
    }
    return count;
}

json_t *report_warnings(const struct report_source *source)
{
    const struct page *page = source->page;
    json_t *warnings = json_array();
    for (unsigned i = 0; i < PAGE_WARNINGS; i++) {
        uint64_t count = is_written(&page->warning[i]) ? warning_count(page, i) : 0;
        if (count == 0)
            continue;
        json_t *entry = json_object();
        report_put(entry, "text", report_string(page->warning[i].text));
        report_put(entry, "count", report_number(count));
        report_append(warnings, entry);
    }
    return warnings;
}
