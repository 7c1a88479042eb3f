/* What happened last: a ring of events beside the page's numbers, in the same file, so that it
 * outlives the process too.
 *
 * Written under the lock; what threads note alone is taken to it from rows behind it
 * (events_alone.h). A place is whole when its number says so; one that a killed thread left half
 * written has none. Readers in other processes check the number before and after. All values are
 * relaxed atomics.
 */
#ifndef CACHALOT_STATS_EVENTS_EVENTS_H
#define CACHALOT_STATS_EVENTS_EVENTS_H

#include "stats/counters/stat_value.h"

#define EVENTS_MOST (1u << 19)
#define EVENTS_LEAST 16u

/* X(name): what `action` of an event is */
#define EVENT_LIST(X)                                                                              \
    X(alloc)                                                                                       \
    X(free)                                                                                        \
    X(free_completed) /* reusable only now, not already when it was freed */                       \
    X(segment_alloc)                                                                               \
    X(segment_free)                                                                                \
    X(fence_wait)  /* requested: ns */                                                             \
    X(oom)         /* size: asked for */                                                           \
    X(segment_map) /* mapped memory grows, first at this address; it may move */                   \
    X(segment_unmap)
enum event_action {
#define X(name) EVENT_##name,
    EVENT_LIST(X)
#undef X
        EVENT_ACTIONS
};

struct event {
    stat_value number; /* 1 for the first ever; 0: being written */
    stat_value ticks, address, size, requested;
    stat_value who; /* thread: low half; site + 1: 16 bits; device: 12 bits; action: 4 bits */
};

struct event_clock {
    uint64_t ticks, ns; /* CLOCK_MONOTONIC */
};

/* A trace holds all events (trace.h): ON means that none is overwritten before it was written. */
enum events_trace { TRACE_NONE, TRACE_ON, TRACE_ENDED, TRACE_STOPPED };

/* Before the events; 0 at the begin of service but for what events_start sets. */
struct events {
    _Alignas(64) stat_value count; /* places given out ever */
    _Alignas(64) stat_value check; /* when the count gets here there is more to do */
    stat_value trace, written;     /* enum events_trace; how many the trace has */
    _Atomic uint32_t wake;         /* futex: changes when there is much to write */
    uint32_t shown;                /* in reports; 0: none */
    uint64_t capacity;             /* a power of two */
    uint64_t begin_ns;             /* what times are counted from */
    struct event_clock first, last[2];
    stat_value latest; /* which of `last` */
    uint64_t rows;     /* that ever had a thread */
    _Alignas(64) struct event event[];
};

uint64_t events_bytes(uint64_t capacity); /* 0 for none */
void events_start(struct events *events, uint64_t capacity, uint32_t shown, uint64_t begin_ns);

/* The lock is held. What threads noted alone goes first. */
void events_add(struct events *events, enum event_action action, unsigned device, uint64_t address,
                uint64_t size, uint64_t requested, uint32_t site);

/* Before event `n`, when that is where `check` says. */
void events_check(struct events *events, uint64_t n);

static inline uint64_t event_who(uint64_t thread, enum event_action action, unsigned device,
                                 uint32_t site)
{
    return thread | (uint64_t)(site & 0xffff) << 32 | (uint64_t)(device & 0xfff) << 48 |
           (uint64_t)action << 60;
}

/* Times of events, in ns since `begin_ns`, as of `now`. */
struct event_clock events_clock(void);
uint64_t events_ns(const struct events *events, const struct event_clock *now, uint64_t ticks);

#endif
