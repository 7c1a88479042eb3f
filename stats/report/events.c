/* The report on events. It is written as text, without jansson: there may be EVENTS_MOST events, and
 * each is only numbers. */
#include "stats/report/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW_BYTES 288 /* more than the longest row */
#define HEAD_BYTES 128
#define MOST_LOOKS 100

static const char *const action_names[] = {
#define X(name) [EVENT_##name] = #name,
    EVENT_LIST(X)
#undef X
};

/* Copies event `n`. Returns 0 if its place holds another event, or half of one. */
static int read_event(const struct events *events, uint64_t n, struct event *copy)
{
    const struct event *event = &events->ring->event[n & (events->capacity - 1)];
    if (atomic_load_explicit(&event->number, memory_order_acquire) != n + 1)
        return 0;
    stat_set(&copy->ticks, stat_get(&event->ticks));
    stat_set(&copy->address, stat_get(&event->address));
    stat_set(&copy->size, stat_get(&event->size));
    stat_set(&copy->requested, stat_get(&event->requested));
    stat_set(&copy->who, stat_get(&event->who));
    atomic_thread_fence(memory_order_acquire);
    return stat_get(&event->number) == n + 1 && copy->who >> 60 < EVENT_ACTIONS;
}

static uint64_t whole(uint64_t value)
{
    return value < UINT64_C(1) << 53 ? value : (UINT64_C(1) << 53) - 1;
}

static int write_row(char *to, const struct report_source *source, const struct event *event,
                     uint64_t time_ns)
{
    enum event_action action = event->who >> 60;
    uint64_t site = report_site(source, event->who >> 32 & 0xffff);
    uint64_t device = event->who >> 48 & 0xfff;
    int uncached = action == EVENT_uncached_alloc || action == EVENT_uncached_free;
    char requested[32] = "null", index[16] = "null", more[48] = "", on[16] = "null";
    if (!uncached || device != EVENT_NO_DEVICE)
        snprintf(on, sizeof on, "%" PRIu64, device);
    if (uncached)
        snprintf(requested, sizeof requested, "%" PRIu64, whole(event->size));
    if (action == EVENT_alloc || action == EVENT_free || action == EVENT_free_completed ||
        action == EVENT_oom)
        snprintf(requested, sizeof requested, "%" PRIu64, whole(event->requested));
    if (action == EVENT_fence_wait || action == EVENT_ask)
        snprintf(more, sizeof more, ", \"duration_ns\": %" PRIu64, whole(event->requested));
    if (site)
        snprintf(index, sizeof index, "%" PRIu64, site - 1);
    return snprintf(
        to, ROW_BYTES,
        "{\"time_ns\": %" PRIu64 ", \"action\": \"%s\", \"kind\": \"%s\", \"device\": %s"
        ", \"address\": \"0x%" PRIx64 "\", \"size_bytes\": %" PRIu64
        ", \"requested_bytes\": %s, \"thread\": %" PRIu64 ", \"site\": %s%s}",
        whole(time_ns), action_names[action],
        report_kind_name(uncached ? (unsigned)event->requested : 0), on, (uint64_t)event->address,
        whole(event->size), requested, (uint64_t)event->who & UINT32_MAX, index, more);
}

/* A dead process left its readings of the clock; for a live one this reads the clock. */
static struct event_clock clock_for(const struct events *events, int harvest)
{
    return harvest ? events->ring->last[events->ring->latest & 1] : events_clock();
}

/* Copies the events that the report shows to `to`, which has room for them. Returns their number, and
 * in *end the number of all events ever. Threads may overwrite a small ring meanwhile; another look
 * then finds more. */
static uint64_t copy_events(const struct events *events, struct event *to, uint64_t *end)
{
    uint64_t copied = 0, shown, before = 0;
    for (int look = 0; look < MOST_LOOKS; look++, before = *end) {
        *end = atomic_load_explicit(&events->count, memory_order_acquire);
        shown = *end < events->shown ? *end : events->shown;
        copied = 0;
        for (uint64_t n = *end - shown; n < *end; n++)
            copied += (uint64_t)read_event(events, n, &to[copied]);
        if (2 * copied >= shown || *end == before)
            break;
    }
    return copied;
}

static char *write_rows(char *to, const struct report_source *source, const struct event *event,
                        uint64_t count)
{
    const struct events *events = page_events(source->page);
    struct event_clock now = clock_for(events, source->options->kind == REPORT_HARVEST);
    uint64_t time_ns = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t ns = events_ns(events, &now, event[i].ticks);
        time_ns = ns > time_ns ? ns : time_ns; /* cores may differ by a few ticks */
        to += sprintf(to, "%s\n      ", i ? "," : "");
        to += write_row(to, source, &event[i], time_ns);
    }
    return to;
}

char *report_add_events(char *text, const struct report_source *source)
{
    const struct events *events = page_events(source->page);
    size_t length = text ? strlen(text) : 0;
    if (!events || !events->shown || length < 3)
        return text;
    struct event *event = malloc(events->shown * sizeof *event);
    uint64_t end, rows = event ? copy_events(events, event, &end) : 0;
    char *longer = event ? realloc(text, length + rows * ROW_BYTES + HEAD_BYTES) : NULL;
    if (!longer) {
        free(event);
        free(text);
        return NULL;
    }
    /* The text replaces the last newline and brace. The rows come before the count of lost events,
     * which they tell. */
    char *to = longer + length - 2;
    to += sprintf(to, ",\n  \"events\": {\n    \"rows\": [");
    to = write_rows(to, source, event, rows);
    free(event);
    sprintf(to, "\n    ],\n    \"capacity\": %" PRIu64 ",\n    \"lost\": %" PRIu64 "\n  }\n}",
            (uint64_t)events->shown, whole(end - rows));
    return longer;
}
