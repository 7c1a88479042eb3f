#include "stats/events/events.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stats/events/events_alone.h"
#include "stats/os/pause.h"
#include "stats/os/ticks.h"

#define CHECK_EVERY 4096
#define MOST_NAPS 10000 /* of 100 us */

/* This thread's number, above that of the process for which it was asked. */
static _Thread_local __attribute__((tls_model("initial-exec"))) uint64_t thread;
static uint32_t process;

uint64_t events_bytes(uint64_t capacity)
{
    return capacity ? sizeof(struct events) + capacity * sizeof(struct event) +
                          EVENT_ROWS * sizeof(struct events_row)
                    : 0;
}

struct event_clock events_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (struct event_clock){ticks_now(),
                                (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec};
}

void events_start(struct events *events, uint64_t capacity, uint32_t shown, uint64_t begin_ns)
{
    events->capacity = capacity;
    events->shown = shown;
    events->begin_ns = begin_ns;
    events->first = events_clock();
    events->last[0] = events->last[1] = events->first;
    process = (uint32_t)getpid();
}

/* Wakes who writes the trace. */
static void wake(struct events *events)
{
    atomic_fetch_add(&events->wake, 1);
    syscall(SYS_futex, &events->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Until the place of event `n` was written to the trace. Only so long: a disk that hangs shall not
 * hang the program. */
static void wait_for_trace(struct events *events, uint64_t n)
{
    for (int i = 0; stat_get(&events->trace) == TRACE_ON; i++) {
        uint64_t written = atomic_load_explicit(&events->written, memory_order_acquire);
        if (n - written < events->capacity)
            return;
        if (i == MOST_NAPS)
            atomic_store(&events->trace, TRACE_STOPPED);
        wake(events);
        pause_ns(100000);
    }
}

/* Now and then what a tick is: whoever harvests the page cannot ask any more. Early ones come more
 * often, so that a short run has a second reading too. */
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
    uint64_t other = !stat_get(&events->latest);
    events->last[other] = events_clock();
    atomic_store_explicit(&events->latest, other, memory_order_release);
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
