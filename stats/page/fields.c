/* The table of fields, made from the same lists as the structs. */
#include "stats/page/fields.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES sizeof((struct page_field *)0)->name

/* With table NULL the writer only counts. */
struct field_writer {
    struct page_field *table;
    unsigned count;
    uint32_t row_offset, row_stride;
};

/* The page's memory is zeroed, so texts end. */
static void field(struct field_writer *writer, const char *name, size_t offset, const char *unit)
{
    unsigned number = writer->count++;
    if (writer->table == NULL)
        return;
    struct page_field *to = writer->table + number;
    strncpy(to->name, name, sizeof to->name - 1);
    strncpy(to->unit, unit, sizeof to->unit - 1);
    to->offset = (uint32_t)offset;
}

/* Formats a name; the writer that only counts needs none. */
__attribute__((format(printf, 3, 4))) static const char *
name_of(const struct field_writer *writer, char *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (writer->table)
        vsnprintf(text, NAME_BYTES, format, arguments);
    va_end(arguments);
    return text;
}

/* A number that is the sum of `parts` numbers. */
static void sum_field(struct field_writer *writer, const char *name, size_t offset,
                      const char *unit, uint32_t parts, size_t stride)
{
    field(writer, name, offset, unit);
    if (writer->table == NULL)
        return;
    writer->table[writer->count - 1].parts = parts;
    writer->table[writer->count - 1].part_stride = (uint32_t)stride;
}

static void cache_field(struct field_writer *writer, const char *name, size_t offset,
                        const char *unit)
{
    sum_field(writer, name, offsetof(struct page, cache) + offset, unit, PAGE_CACHES,
              sizeof(struct cache_row));
}

static void cache_fields(struct field_writer *writer)
{
    cache_field(writer, "cache.sequence", offsetof(struct cache_row, sequence), "count");
    cache_field(writer, "cache.device", offsetof(struct cache_row, device), "count");
    cache_field(writer, "cache.allocated_bytes", offsetof(struct cache_row, allocated_bytes),
                "bytes");
    cache_field(writer, "cache.freed_bytes", offsetof(struct cache_row, freed_bytes), "bytes");
    for (unsigned bin = 0; bin < CACHE_BINS; bin++) {
        char text[NAME_BYTES];
#define X(name, unit, meaning)                                                                     \
    cache_field(writer, name_of(writer, text, "cache." #name ".%u", bin),                          \
                offsetof(struct cache_row, bin[0].name) + bin * sizeof(struct cache_bin), unit);
        CACHE_LIST(X)
#undef X
    }
}

static void row_field(struct field_writer *writer, const char *name, size_t offset,
                      const char *unit)
{
    field(writer, name, writer->row_offset + offset, unit);
    if (writer->table != NULL)
        writer->table[writer->count - 1].stride = writer->row_stride;
}

#define PAGE_FIELD(name, unit) field(writer, #name, offsetof(struct page, name), unit)

static void process_fields(struct field_writer *writer)
{
    PAGE_FIELD(tool, "text");
    PAGE_FIELD(pid, "count");
    PAGE_FIELD(start_ticks, "count");
    PAGE_FIELD(generation, "count");
    PAGE_FIELD(pid_namespace, "count");
    PAGE_FIELD(uid, "count");
    PAGE_FIELD(start_realtime_ns, "ns");
    PAGE_FIELD(start_monotonic_ns, "ns");
    PAGE_FIELD(exe, "text");
    PAGE_FIELD(program, "text");
    PAGE_FIELD(cwd, "text");
    PAGE_FIELD(hostname, "text");
    PAGE_FIELD(session, "text");
    PAGE_FIELD(rank, "text");
    PAGE_FIELD(rank_source, "text");
    PAGE_FIELD(output, "text");
    PAGE_FIELD(coverage_note, "text");
    PAGE_FIELD(hook_order, "text");
    PAGE_FIELD(oom_count, "count");
    PAGE_FIELD(warnings_lost, "count");
}

static void coverage_fields(struct field_writer *writer)
{
#define X(name, meaning)                                                                           \
    field(writer, "coverage." #name, offsetof(struct page, coverage[COVERAGE_##name]), "count");
    COVERAGE_LIST(X)
#undef X
#define X(name, meaning)                                                                           \
    sum_field(writer, "submissions." #name,                                                        \
              offsetof(struct page, thread[0].submissions[SUBMISSION_##name]), "count",            \
              PAGE_THREADS, sizeof(struct page_thread));
    SUBMISSION_LIST(X)
#undef X
#define X(name, unit, meaning)                                                                     \
    field(writer, "sleep." #name, offsetof(struct page, sleep[SLEEP_##name]), unit);
    SLEEP_LIST(X)
#undef X
}

#define OTHER(name, part) offsetof(struct page, others[UNCACHED_##name].part)

static void uncached_fields(struct field_writer *writer)
{
#define X(name, kind)                                                                              \
    field(writer, "others." #name ".bytes", OTHER(name, bytes), "bytes");                          \
    field(writer, "others." #name ".peak_bytes", OTHER(name, peak_bytes), "bytes");                \
    field(writer, "others." #name ".allocated", OTHER(name, allocated), "count");                  \
    field(writer, "others." #name ".freed", OTHER(name, freed), "count");                          \
    field(writer, "others." #name ".total_bytes", OTHER(name, total_bytes), "bytes");              \
    field(writer, "others." #name ".ended", OTHER(name, ended), "count");                          \
    field(writer, "others." #name ".unbooked", OTHER(name, unbooked), "count");                    \
    field(writer, "others." #name ".peak_blocks", OTHER(name, peak_blocks), "count");              \
    sum_field(writer, "others." #name ".live", OTHER(name, live), "count", HISTOGRAM_BINS,         \
              sizeof(stat_value));
    UNCACHED_LIST(X)
#undef X
}

#define ROW(part) offsetof(struct page_device, part)

static void stat_fields(struct field_writer *writer, const char *name, size_t offset,
                        const char *unit)
{
    static const struct {
        const char *name;
        size_t offset;
    } parts[] = {
        {"allocated.small_pool", offsetof(struct pool_stat, allocated[SMALL_POOL])},
        {"allocated.large_pool", offsetof(struct pool_stat, allocated[LARGE_POOL])},
        {"freed.small_pool", offsetof(struct pool_stat, freed[SMALL_POOL])},
        {"freed.large_pool", offsetof(struct pool_stat, freed[LARGE_POOL])},
        {"peak.small_pool", offsetof(struct pool_stat, peak[SMALL_POOL])},
        {"peak.large_pool", offsetof(struct pool_stat, peak[LARGE_POOL])},
        {"peak.all", offsetof(struct pool_stat, peak[STAT_POOLS])},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char text[NAME_BYTES];
        row_field(writer, name_of(writer, text, "device.%s.%s", name, parts[i].name),
                  offset + parts[i].offset, unit);
    }
}

static void histogram_fields(struct field_writer *writer, const char *name, size_t offset,
                             const char *unit)
{
    for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++) {
        char text[NAME_BYTES];
        row_field(writer, name_of(writer, text, "device.%s.%u", name, bin),
                  offset + bin * sizeof(stat_value), unit);
    }
}

static void device_fields(struct field_writer *writer)
{
    row_field(writer, "device.name", ROW(name), "text");
    row_field(writer, "device.uuid", ROW(uuid), "text");
    row_field(writer, "device.ordinal", ROW(ordinal), "count");
    row_field(writer, "device.total_bytes", ROW(total_bytes), "bytes");
    row_field(writer, "device.used", ROW(used), "bool");
    row_field(writer, "device.sequence", ROW(stats.sequence), "count");
#define X(name, unit) stat_fields(writer, #name, ROW(stats.stat[STAT_##name]), unit);
    STAT_LIST(X)
#undef X
#define X(name, unit, meaning)                                                                     \
    row_field(writer, "device." #name, ROW(stats.counter[COUNTER_##name]), unit);
    COUNTER_LIST(X)
#undef X
#define X(name)                                                                                    \
    row_field(writer, "device.at_peak_reserved." #name,                                            \
              ROW(stats.at_peak_reserved[MOMENT_##name]), "bytes");                                \
    row_field(writer, "device.at_peak_allocated." #name,                                           \
              ROW(stats.at_peak_allocated[MOMENT_##name]), "bytes");
    MOMENT_LIST(X)
#undef X
    histogram_fields(writer, "histogram_total", ROW(stats.histogram_total), "count");
    histogram_fields(writer, "histogram_live", ROW(stats.histogram_live), "count");
    histogram_fields(writer, "histogram_live_bytes", ROW(stats.histogram_live_bytes), "bytes");
}

static void all_fields(struct field_writer *writer)
{
    process_fields(writer);
    coverage_fields(writer);
    uncached_fields(writer);
    cache_fields(writer);
    device_fields(writer);
}

unsigned page_fields_count(void)
{
    struct field_writer writer = {0};
    all_fields(&writer);
    return writer.count;
}

void page_fields_write(struct page *page)
{
    struct field_writer writer = {
        .table = (struct page_field *)((char *)page + page->field_offset),
        .row_offset = page->device_offset,
        .row_stride = page->device_stride,
    };
    all_fields(&writer);
}
