/* The last events of a process: a ring beside the page's numbers, in the same file, so that it
 * outlives the process too.
 *
 * The holder of the allocator's lock writes the ring. A thread that allocates without the lock
 * notes its events in a row of its own, behind the ring. The lock's holder takes the rows to the
 * ring, by time, before it adds an event of its own. Each address's events therefore keep their
 * order, as long as no thread notes in its row what happens to a block whose last event may lie in
 * another row.
 *
 * A place of the ring is whole when its `number` says so; a place that a killed thread left half
 * written has none. Readers in other processes check the number before and after they copy a place.
 * All values are relaxed atomics.
 */
#ifndef CACHALOT_STATS_EVENTS_EVENTS_H
#define CACHALOT_STATS_EVENTS_EVENTS_H

#include "stats/counters/stat_value.h"
#include "stats/os/ticks.h"

#define EVENTS_MOST (1u << 19)
#define EVENTS_LEAST 16u
#define EVENT_ROWS 128   /* threads that have a row */
#define EVENTS_ALONE 64u /* events of a row */

/* X(name): the `action` of an event */
#define EVENT_LIST(X)                                                                                 \
    X(alloc)                                                                                          \
    X(free)                                                                                           \
    X(free_completed) /* freed before, and reusable since a fence has passed */                       \
    X(segment_alloc)                                                                                  \
    X(segment_free)                                                                                   \
    X(fence_wait)  /* requested: ns */                                                                \
    X(oom)         /* size: requested bytes */                                                        \
    X(segment_map) /* mapped memory grows, first at this address; it may move */                      \
    X(segment_unmap)                                                                                  \
    X(ask)            /* other processes are asked for size bytes; requested: ns */                   \
    X(uncached_alloc) /* memory that the cache does not serve; requested: as snapshot_block's kind */ \
    X(uncached_free)
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

/* A trace (output/trace.h) holds all events. ON: no event is overwritten before the trace has it. */
enum events_trace { TRACE_NONE, TRACE_ON, TRACE_ENDED, TRACE_STOPPED };

/* The ring in the page, for readers: all 0 at the start of service, except what events_start sets. */
struct events_ring {
    _Alignas(64) stat_value count; /* places given out ever */
    _Alignas(64) stat_value rows;  /* that ever had a thread */
    stat_value trace, written;     /* enum events_trace; events that the trace has */
    uint64_t shown;                /* in reports; 0: none */
    uint64_t capacity;             /* a power of two */
    uint64_t begin_ns;             /* the zero of the events' times */
    struct event_clock first, last[2];
    stat_value latest; /* which of `last` */
    _Alignas(64) struct event event[];
};

/* A thread's row. `noted` and `taken` count events ever. */
struct events_row {
    _Alignas(64) stat_value noted;                 /* written by the row's thread */
    _Alignas(64) stat_value taken;                 /* written under the lock, as is `held` */
    uint64_t held;                                 /* the row's number, plus one; 0: free */
    _Alignas(64) struct event event[EVENTS_ALONE]; /* their `number` is 0 */
};

/* The recorder: what its process acts on. The ring has copies of these numbers, and may be damaged. */
struct events {
    struct events_ring *ring; /* NULL: none */
    struct events_row *row;   /* EVENT_ROWS of them, behind the ring */
    uint64_t capacity, shown, begin_ns;
    struct event_clock first;
    stat_value count, trace, written, rows;
    stat_value check;      /* events_check has work when the count reaches this */
    _Atomic uint32_t wake; /* futex: changes when the trace's writer has much to write */
};

uint64_t events_bytes(uint64_t capacity); /* of ring and rows; 0 for none */

/* Begins a ring in memory that is all 0. */
void events_start(struct events *events, void *memory, uint64_t capacity, uint64_t shown,
                  uint64_t begin_ns);

/* A recorder for a ring of another process, in a copy whose numbers are checked. */
void events_bind(struct events *events, struct events_ring *ring);

/* Set the recorder's number and the ring's copy of it. */
void events_set_trace(struct events *events, enum events_trace trace);
void events_set_written(struct events *events, uint64_t written);

#define EVENT_NO_DEVICE 0xfffu

/* Takes all rows, then adds an event. The lock is held. May wait for the trace. */
void events_add(struct events *events, enum event_action action, unsigned device, uint64_t address,
                uint64_t size, uint64_t requested, uint32_t site);

/* Clock readings and the wait for the trace, before event `n`. For events_put. */
void events_check(struct events *events, uint64_t n);

/* Takes all rows to the ring. The lock is held, or the process is dead. With `wait` it waits for
 * the trace as events_add does, else it leaves what has no room yet. Returns how many it took. */
uint64_t events_take(struct events *events, int wait);

/* Repairs a dead process's page before its first events_take: the process may have died in one. */
void events_take_over(struct events *events);

/* A row for the calling thread; NULL: there is none left. The end empties it. The lock is held. */
struct events_row *events_row_begin(struct events *events);
void events_row_end(struct events *events, struct events_row *row);

/* The bits of `who` that name the calling thread. */
uint64_t events_thread(void);

static inline uint64_t event_who(uint64_t thread, enum event_action action, unsigned device,
                                 uint32_t site)
{
    return thread | (uint64_t)(site & 0xffff) << 32 | (uint64_t)(device & 0xfff) << 48 |
           (uint64_t)action << 60;
}

/* Times of events, in ns since `begin_ns`, as of `now`. */
struct event_clock events_clock(void);
uint64_t events_ns(const struct events *events, const struct event_clock *now, uint64_t ticks);

/* Whether the row's thread may note one more event. */
static inline int events_row_has_room(const struct events_row *row)
{
    return stat_get(&row->noted) - atomic_load_explicit(&row->taken, memory_order_acquire) <
           EVENTS_ALONE;
}

/* Notes an event in the calling thread's row, which has room. */
static inline void events_note(struct events_row *row, uint64_t who, uint64_t address,
                               uint64_t size, uint64_t requested)
{
    uint64_t n = stat_get(&row->noted);
    struct event *event = &row->event[n % EVENTS_ALONE];
    stat_set(&event->ticks, ticks_now());
    stat_set(&event->address, address);
    stat_set(&event->size, size);
    stat_set(&event->requested, requested);
    stat_set(&event->who, who);
    atomic_store_explicit(&row->noted, n + 1, memory_order_release);
}

/* A copy of `from` at the ring's next place. The lock is held. */
static inline void events_put(struct events *events, const struct event *from)
{
    uint64_t n = stat_get(&events->count);
    struct event *event = &events->ring->event[n & (events->capacity - 1)];
    if (__builtin_expect(n >= stat_get(&events->check), 0))
        events_check(events, n);
    stat_set(&event->number, 0);
    stat_set(&events->count, n + 1);
    stat_set(&events->ring->count, n + 1);
    atomic_thread_fence(memory_order_release);
    stat_set(&event->ticks, stat_get(&from->ticks));
    stat_set(&event->address, stat_get(&from->address));
    stat_set(&event->size, stat_get(&from->size));
    stat_set(&event->requested, stat_get(&from->requested));
    stat_set(&event->who, stat_get(&from->who));
    atomic_store_explicit(&event->number, n + 1, memory_order_release);
}

#endif
