/* Events that a thread notes alone, without the lock, in a row of its own behind the ring: in the
 * page's file too, so that a kill loses none. Whoever holds the lock takes them to the ring, by
 * time, before any event of its own. So each address's events keep their order, as long as no
 * thread notes alone what happens to a block whose last event may lie in another's row. */
#ifndef CACHALOT_STATS_EVENTS_EVENTS_ALONE_H
#define CACHALOT_STATS_EVENTS_EVENTS_ALONE_H

#include "stats/events/events.h"
#include "stats/os/ticks.h"

#define EVENT_ROWS 128 /* threads that may */
#define EVENTS_ALONE 64u

struct events_row {
    _Alignas(64) stat_value noted;                 /* ever, by the row's thread */
    _Alignas(64) stat_value taken;                 /* of these, under the lock, and `held` */
    uint64_t held;                                 /* by a thread: its number, plus one */
    _Alignas(64) struct event event[EVENTS_ALONE]; /* their numbers are 0 */
};

/* A row for the calling thread; NULL: there is none left. Given back, it is empty. The lock is
 * held. */
struct events_row *events_row_begin(struct events *events);
void events_row_end(struct events *events, struct events_row *row);

/* The bits of `who` that say which thread is the calling one. */
uint64_t events_thread(void);

/* As long as it has, its thread may note one more. */
static inline int events_row_has_room(const struct events_row *row)
{
    return stat_get(&row->noted) - atomic_load_explicit(&row->taken, memory_order_acquire) <
           EVENTS_ALONE;
}

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
    struct event *event = &events->event[n & (events->capacity - 1)];
    if (__builtin_expect(n >= stat_get(&events->check), 0))
        events_check(events, n);
    stat_set(&event->number, 0);
    stat_set(&events->count, n + 1);
    atomic_thread_fence(memory_order_release);
    stat_set(&event->ticks, stat_get(&from->ticks));
    stat_set(&event->address, stat_get(&from->address));
    stat_set(&event->size, stat_get(&from->size));
    stat_set(&event->requested, stat_get(&from->requested));
    stat_set(&event->who, stat_get(&from->who));
    atomic_store_explicit(&event->number, n + 1, memory_order_release);
}

/* All rows to the ring; the lock is held, or the process is dead. May wait for the trace as
 * events_add does, or, without `wait`, leaves what has no room there yet. Returns how many. */
uint64_t events_take(struct events *events, int wait);

/* Before the first time in a page whose process is dead: it may have died while it took. */
void events_take_over(struct events *events);

#endif
