#include "stats/events/events.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stats/os/clock.h"
#include "stats/os/pause.h"
#include "stats/os/ticks.h"

#define CHECK_EVERY 4096
#define MOST_NAPS 10000 /* of 100 us */

/* The number of this thread, above that of the process in which it was read: a forked child reads
 * its own. */
static _Thread_local __attribute__((tls_model("initial-exec"))) uint64_t thread;
static uint32_t process;

uint64_t events_bytes(uint64_t capacity)
{
    return capacity ? sizeof(struct events_ring) + capacity * sizeof(struct event) +
                          EVENT_ROWS * sizeof(struct events_row)
                    : 0;
}

struct event_clock events_clock(void)
{
    uint64_t ns = clock_ns(CLOCK_MONOTONIC);
    return (struct event_clock){ticks_now(), ns};
}

void events_start(struct events *events, void *memory, uint64_t capacity, uint64_t shown,
                  uint64_t begin_ns)
{
    struct events_ring *ring = memory;
    ring->capacity = capacity;
    ring->shown = shown;
    ring->begin_ns = begin_ns;
    ring->first = ring->last[0] = ring->last[1] = events_clock();
    events_bind(events, ring);
    process = (uint32_t)getpid();
}

void events_bind(struct events *events, struct events_ring *ring)
{
    *events = (struct events){.ring = ring,
                              .row = (struct events_row *)&ring->event[ring->capacity],
                              .capacity = ring->capacity,
                              .shown = ring->shown,
                              .begin_ns = ring->begin_ns,
                              .first = ring->first,
                              .count = stat_get(&ring->count),
                              .trace = stat_get(&ring->trace),
                              .written = stat_get(&ring->written),
                              .rows = stat_get(&ring->rows)};
}

void events_set_trace(struct events *events, enum events_trace trace)
{
    atomic_store(&events->trace, trace);
    stat_set(&events->ring->trace, trace);
}

void events_set_written(struct events *events, uint64_t written)
{
    atomic_store_explicit(&events->written, written, memory_order_release);
    atomic_store_explicit(&events->ring->written, written, memory_order_release);
}

/* Wakes the thread that writes the trace. */
static void wake(struct events *events)
{
    atomic_fetch_add(&events->wake, 1);
    syscall(SYS_futex, &events->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Waits until the trace has the event that event `n` overwrites. The wait is bounded: a disk that
 * hangs stops the trace, not the program. */
static void wait_for_trace(struct events *events, uint64_t n)
{
    for (int i = 0; stat_get(&events->trace) == TRACE_ON; i++) {
        uint64_t written = atomic_load_explicit(&events->written, memory_order_acquire);
        if (n - written < events->capacity)
            return;
        if (i == MOST_NAPS)
            events_set_trace(events, TRACE_STOPPED);
        wake(events);
        pause_ns(100000);
    }
}

/* Reads both clocks every CHECK_EVERY events: the reader of a dead process's page cannot read that
 * process's clock. The first readings come sooner, so that a short run has two as well. */
void events_check(struct events *events, uint64_t n)
{
    uint64_t due = stat_get(&events->check), next = n < CHECK_EVERY ? 2 * n + 1 : n + CHECK_EVERY;
    int error = errno;
    if (stat_get(&events->trace) == TRACE_ON) {
        uint64_t written = atomic_load_explicit(&events->written, memory_order_acquire);
        if (n - written >= events->capacity / 4)
            wake(events);
        wait_for_trace(events, n);
        written = stat_get(&events->written);
        next = next < written + events->capacity ? next : written + events->capacity;
    }
    errno = error;
    if (n < due)
        return;
    stat_set(&events->check, next);
    uint64_t other = !stat_get(&events->ring->latest);
    events->ring->last[other] = events_clock();
    atomic_store_explicit(&events->ring->latest, other, memory_order_release);
}

struct events_row *events_row_begin(struct events *events)
{
    for (uint64_t i = 0; i < EVENT_ROWS; i++) {
        struct events_row *row = &events->row[i];
        if (row->held)
            continue;
        row->held = i + 1;
        if (events->rows <= i) {
            stat_set(&events->rows, i + 1);
            stat_set(&events->ring->rows, i + 1);
        }
        return row;
    }
    return NULL;
}

void events_row_end(struct events *events, struct events_row *row)
{
    events_take(events, 1);
    row->held = 0;
}

/* The events that rows hold, by their numbers. Threads may add events as fast as they are taken, and a
 * row may be damaged: what is taken is decided at the start. */
struct harvest {
    uint64_t from[EVENT_ROWS], until[EVENT_ROWS];
};

/* A damaged row holds no events. */
static void look_into(const struct events_row *row, uint64_t *from, uint64_t *until)
{
    uint64_t noted = atomic_load_explicit(&row->noted, memory_order_acquire);
    *from = stat_get(&row->taken);
    *until = noted - *from <= EVENTS_ALONE ? noted : *from;
}

static uint64_t ticks_of(const struct events_row *row, uint64_t n)
{
    return stat_get(&row->event[n % EVENTS_ALONE].ticks);
}

/* The row whose next event is the oldest; -1: all are empty. *before: the time of the oldest event in
 * the other rows. */
static int64_t oldest(const struct events *events, uint64_t rows, const struct harvest *harvest,
                      uint64_t *before)
{
    int64_t found = -1;
    uint64_t ticks = *before = UINT64_MAX;
    for (uint64_t i = 0; i < rows; i++) {
        if (harvest->from[i] == harvest->until[i])
            continue;
        uint64_t at = ticks_of(&events->row[i], harvest->from[i]);
        if (found < 0 || at < ticks) {
            *before = ticks;
            ticks = at;
            found = (int64_t)i;
        } else if (at < *before) {
            *before = at;
        }
    }
    return found;
}

static int has_room(const struct events *events)
{
    return stat_get(&events->trace) != TRACE_ON ||
           stat_get(&events->count) - stat_get(&events->written) < events->capacity;
}

uint64_t events_take(struct events *events, int wait)
{
    struct harvest harvest;
    uint64_t before, count = 0, rows = events->rows;
    for (uint64_t i = 0; i < rows; i++)
        look_into(&events->row[i], &harvest.from[i], &harvest.until[i]);
    for (int64_t i; (i = oldest(events, rows, &harvest, &before)) >= 0;) {
        struct events_row *row = &events->row[i];
        uint64_t taken = harvest.from[i];
        do {
            if (!wait && !has_room(events))
                return count;
            events_put(events, &row->event[taken % EVENTS_ALONE]);
            atomic_store_explicit(&row->taken, ++taken, memory_order_release);
            count++;
        } while (taken != harvest.until[i] && ticks_of(row, taken) <= before);
        harvest.from[i] = taken;
    }
    return count;
}

void events_take_over(struct events *events)
{
    uint64_t count = stat_get(&events->count), from, until;
    const struct event *last = &events->ring->event[(count - 1) & (events->capacity - 1)];
    for (uint64_t i = 0; i < events->rows && last->number == count; i++) {
        struct events_row *row = &events->row[i];
        look_into(row, &from, &until);
        const struct event *next = &row->event[from % EVENTS_ALONE];
        if (until != from && next->ticks == last->ticks && next->who == last->who &&
            next->address == last->address)
            stat_increase(&row->taken, 1);
    }
}

static __attribute__((noinline)) void name_thread(void)
{
    thread = (uint64_t)(uint32_t)syscall(SYS_gettid) << 32 | process;
}

uint64_t events_thread(void)
{
    if ((uint32_t)thread != process)
        name_thread();
    return thread >> 32;
}

void events_add(struct events *events, enum event_action action, unsigned device, uint64_t address,
                uint64_t size, uint64_t requested, uint32_t site)
{
    if (events->rows)
        events_take(events, 1);
    struct event event = {0,    ticks_now(), address,
                          size, requested,   event_who(events_thread(), action, device, site)};
    events_put(events, &event);
}

uint64_t events_ns(const struct events *events, const struct event_clock *now, uint64_t ticks)
{
    double passed = (double)(now->ns - events->first.ns);
    double counted = (double)(now->ticks - events->first.ticks);
    double since = (double)(int64_t)(ticks - events->first.ticks);
    double ns = counted > 0 && passed > 0 ? since * (passed / counted) : 0;
    ns += (double)(int64_t)(events->first.ns - events->begin_ns);
    return ns > 0 ? (uint64_t)ns : 0;
}
