/* The report on requests that ran out of memory: the request, the memory there was, and the options
 * that would have served it, in numbers and in a sentence. The advice follows from the sums of that
 * moment. For `cache:off` it is certain; with other options blocks would have lain elsewhere. */
#include "stats/report/parts.h"
#include "stats/report/value.h"

#include <stdio.h>
#include <string.h>

#define MIB UINT64_C(1048576)
#define CORNERS (16 * MIB) /* a chunk at each end */
#define SIZE_BYTES 32

static const char *size_text(uint64_t bytes, char text[SIZE_BYTES])
{
    if (bytes >= 1024 * MIB)
        snprintf(text, SIZE_BYTES, "%.2f GiB", (double)bytes / (1024.0 * MIB));
    else if (bytes >= MIB)
        snprintf(text, SIZE_BYTES, "%.1f MiB", (double)bytes / (double)MIB);
    else
        snprintf(text, SIZE_BYTES, "%llu bytes", (unsigned long long)bytes);
    return text;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* The bytes that the cache could still get from the driver. */
static uint64_t room(const struct page_oom *oom)
{
    uint64_t own = less(oom->memory_limit_bytes, oom->reserved_bytes);
    uint64_t group = less(oom->group_limit_bytes, oom->group_bytes), least = oom->device_free_bytes;
    least = oom->memory_limit_bytes && own < least ? own : least;
    return oom->group_limit_bytes && group < least ? group : least;
}

/* Whether the limit refused the request, and not the device. */
static int is_limited(const struct page_oom *oom)
{
    uint64_t left = less(oom->memory_limit_bytes, oom->reserved_bytes);
    return !oom->native_would_fit && oom->memory_limit_bytes && left < oom->device_free_bytes &&
           oom->requested_bytes <=
               oom->device_free_bytes + less(oom->reserved_bytes, oom->allocated_bytes);
}

/* The option's value; NULL if there is no such option. */
static const char *value_of(const struct page *page, const char *name)
{
    for (unsigned i = 0; i < page->config_count && i < PAGE_CONFIGS; i++)
        if (strcmp(page->config[i].name, name) == 0)
            return page->config[i].value;
    return NULL;
}

static int is_given(const struct page *page, const char *name)
{
    for (unsigned i = 0; i < page->config_count && i < PAGE_CONFIGS; i++)
        if (strcmp(page->config[i].name, name) == 0)
            return strcmp(page->config[i].source, "default") != 0;
    return 0;
}

static void add_limit(json_t *options, const struct page *page, const struct page_oom *oom)
{
    char text[64];
    uint64_t needed = (oom->reserved_bytes + oom->requested_bytes + 2 * MIB) / MIB + 1;
    if (is_given(page, "memory_limit_mb")) {
        snprintf(text, sizeof text, "memory_limit_mb:%llu", (unsigned long long)needed);
        report_append(options, json_string(text));
    } else {
        report_append(options, json_string("per_process_memory_fraction:1"));
    }
}

static json_t *would_serve(const struct page *page, const struct page_oom *oom)
{
    json_t *options = json_array();
    const char *expandable = value_of(page, "expandable_segments");
    if (is_limited(oom))
        add_limit(options, page, oom);
    /* Mapped memory joins reusable memory from wherever it lies, except the corners of chunks. The
     * figures do not include the rounding of sizes. */
    if (expandable && strcmp(expandable, "False") == 0 && oom->requested_bytes > MIB &&
        oom->requested_bytes + CORNERS <= oom->reusable_bytes + room(oom) &&
        oom->native_would_fit && !is_given(page, "roundup_power2_divisions"))
        report_append(options, json_string("expandable_segments:True"));
    if (oom->native_would_fit)
        report_append(options, json_string("cache:off"));
    return options;
}

static int write_had(char *to, size_t size, const struct page_oom *oom)
{
    char asked[SIZE_BYTES], used[SIZE_BYTES], available[SIZE_BYTES], kept[SIZE_BYTES],
        hole[SIZE_BYTES], pending[SIZE_BYTES], more[96] = "";
    uint64_t waiting = less(oom->active_bytes, oom->allocated_bytes);
    if (waiting)
        snprintf(more, sizeof more, ", and %s were freed but still in use by work on the device",
                 size_text(waiting, pending));
    return snprintf(to, size,
                    "The program asked for %s while it held %s; the device had %s free, the cache "
                    "%s to hand out again, for one request %s%s",
                    size_text(oom->requested_bytes, asked), size_text(oom->allocated_bytes, used),
                    size_text(oom->device_free_bytes, available),
                    size_text(oom->reusable_bytes, kept),
                    size_text(oom->largest_allocatable_bytes, hole), more);
}

/* What other processes held. Bytes that were lost to a reader show as none. */
static void write_holders(char *to, size_t size, const struct page_oom *oom)
{
    char live[SIZE_BYTES], idle[SIZE_BYTES];
    uint64_t rest_live = oom->neighbours_live_bytes, rest_idle = oom->neighbours_idle_bytes;
    uint64_t rest = oom->neighbours;
    int n = 0;
    for (unsigned i = 0; i < PAGE_NEIGHBOURS && oom->neighbour[i].pid; i++, rest = less(rest, 1)) {
        const struct page_neighbour *of = &oom->neighbour[i];
        n += snprintf(to + n, size - (size_t)n, "%s %s (process %llu) held %s live and %s idle",
                      i ? "," : ". Beside it", *of->program ? of->program : "a program",
                      (unsigned long long)of->pid, size_text(of->live_bytes, live),
                      size_text(of->idle_bytes, idle));
        rest_live = less(rest_live, of->live_bytes);
        rest_idle = less(rest_idle, of->idle_bytes);
    }
    if (n && rest)
        snprintf(to + n, size - (size_t)n, ", and %llu more %s live and %s idle",
                 (unsigned long long)rest, size_text(rest_live, live), size_text(rest_idle, idle));
}

/* Is it the limit of the group that refused the request? */
static int is_group_limited(const struct page_oom *oom)
{
    return !oom->native_would_fit && oom->group_limit_bytes &&
           less(oom->group_limit_bytes, oom->group_bytes) < oom->device_free_bytes;
}

static void write_why(char *text, size_t left, const struct page_oom *oom)
{
    char limit[SIZE_BYTES], group[SIZE_BYTES];
    const char *why = ": more than the device has left, also without a cache";
    if (is_limited(oom)) {
        snprintf(text, left, ": the limit of %s that was set is reached, the device is not full",
                 size_text(oom->memory_limit_bytes, limit));
        return;
    }
    if (is_group_limited(oom)) {
        snprintf(text, left, ": the processes of its group have %s of their limit of %s",
                 size_text(oom->group_bytes, group), size_text(oom->group_limit_bytes, limit));
        return;
    }
    if (oom->native_would_fit)
        why = oom->requested_bytes <= oom->reusable_bytes + room(oom)
                  ? ": enough in sum, but in no one piece; without a cache it would have fitted"
                  : ": without a cache it would have fitted";
    else if (oom->memory_limit_bytes && room(oom) < oom->device_free_bytes)
        why = ": more than both the limit and the device have";
    snprintf(text, left, "%s", why);
}

static json_t *explanation(const struct page_oom *oom)
{
    char text[1536];
    int n = write_had(text, sizeof text, oom);
    write_why(text + n, sizeof text - (size_t)n, oom);
    size_t length = strlen(text);
    write_holders(text + length, sizeof text - length, oom);
    return report_string(text);
}

static const char *const kinds[UNCACHED_KINDS] = {
#define X(name, kind) #kind,
    UNCACHED_LIST(X)
#undef X
};

static const char *kind_of(const struct page_oom *oom)
{
    uint64_t kind = oom->kind ? oom->kind - 1 : UNCACHED_device;
    return kind < UNCACHED_KINDS ? kinds[kind] : "unknown";
}

/* What fail_alloc refused. */
static void put_refused(json_t *event, const struct page_oom *oom)
{
    char text[192], size[SIZE_BYTES];
    snprintf(text, sizeof text,
             "The option fail_alloc refused request %llu on purpose: %s of %s memory",
             (unsigned long long)oom->refused, size_text(oom->requested_bytes, size), kind_of(oom));
    report_put(event, "would_serve", json_array());
    report_put(event, "explanation", report_string(text));
    report_put(event, "refused", report_number(oom->refused));
}

static json_t *oom_event(const struct report_source *source, const struct page_oom *oom,
                         uint64_t number)
{
    json_t *event = json_object();
    report_put(event, "number", report_number(number));
    REPORT_NUMBER(event, oom, time_ns);
    REPORT_NUMBER(event, oom, device);
    REPORT_NUMBER(event, oom, requested_bytes);
    REPORT_NUMBER(event, oom, allocated_bytes);
    REPORT_NUMBER(event, oom, active_bytes);
    REPORT_NUMBER(event, oom, reserved_bytes);
    REPORT_NUMBER(event, oom, reusable_bytes);
    REPORT_NUMBER(event, oom, largest_allocatable_bytes);
    REPORT_NUMBER(event, oom, device_free_bytes);
    REPORT_NUMBER(event, oom, memory_limit_bytes);
    report_put(event, "native_would_fit", json_boolean(oom->native_would_fit != 0));
    report_put(event, "asked_bytes", report_number(oom->requested_bytes));
    report_put(event, "largest_hole_bytes", report_number(oom->largest_allocatable_bytes));
    report_put(event, "pending_bytes",
               report_number(less(oom->active_bytes, oom->allocated_bytes)));
    if (oom->refused) {
        put_refused(event, oom);
    } else {
        report_put(event, "would_serve", would_serve(source->page, oom));
        report_put(event, "explanation", explanation(oom));
    }
    report_put(event, "kind", json_string(kind_of(oom)));
    report_put(event, "site", report_site_or_null(source, oom->site));
    REPORT_NUMBER(event, oom, group_limit_bytes);
    REPORT_NUMBER(event, oom, group_bytes);
    REPORT_NUMBER(event, oom, neighbours);
    REPORT_NUMBER(event, oom, neighbours_live_bytes);
    REPORT_NUMBER(event, oom, neighbours_idle_bytes);
    report_put(event, "holders", report_holders(oom));
    return event;
}

json_t *report_oom_events(const struct report_source *source)
{
    const struct page *page = source->page;
    json_t *events = json_array();
    uint64_t count = page->oom_count;
    for (uint64_t n = count > PAGE_OOMS ? count - PAGE_OOMS : 0; n < count; n++)
        report_append(events, oom_event(source, &page->oom[n % PAGE_OOMS], n));
    return events;
}
