#include "stats/events/events_alone.h"

#include <stddef.h>

static struct events_row *row_of(struct events *events, uint64_t i)
{
    return (struct events_row *)&events->event[events->capacity] + i;
}

struct events_row *events_row_begin(struct events *events)
{
    for (uint64_t i = 0; i < EVENT_ROWS; i++) {
        struct events_row *row = row_of(events, i);
        if (row->held)
            continue;
        row->held = i + 1;
        events->rows = events->rows > i ? events->rows : i + 1;
        return row;
    }
    return NULL;
}

void events_row_end(struct events *events, struct events_row *row)
{
    events_take(events, 1);
    row->held = 0;
}

/* What a row holds from `taken` to `until`; a damaged one nothing. */
static uint64_t until_of(const struct events_row *row)
{
    uint64_t noted = atomic_load_explicit(&row->noted, memory_order_acquire);
    uint64_t taken = stat_get(&row->taken);
    return noted - taken <= EVENTS_ALONE ? noted : taken;
}

static uint64_t next_ticks(const struct events_row *row)
{
    return stat_get(&row->event[stat_get(&row->taken) % EVENTS_ALONE].ticks);
}

/* The row whose next event is the oldest, and *before: the time of the oldest in the others. NULL:
 * there is none. */
static struct events_row *oldest(struct events *events, uint64_t rows, const uint64_t *until,
                                 uint64_t *before)
{
    struct events_row *found = NULL;
    uint64_t ticks = *before = UINT64_MAX;
    for (uint64_t i = 0; i < rows; i++) {
        struct events_row *row = row_of(events, i);
        uint64_t at = stat_get(&row->taken) == until[i] ? UINT64_MAX : next_ticks(row);
        if (at < ticks) {
            *before = ticks;
            ticks = at;
            found = row;
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
    uint64_t until[EVENT_ROWS], before, taken, count = 0, rows = events->rows;
    /* First how many there are: those that come meanwhile could be without end. */
    for (uint64_t i = 0; i < rows; i++)
        until[i] = until_of(row_of(events, i));
    for (struct events_row *row; (row = oldest(events, rows, until, &before));) {
        uint64_t end = until[row - row_of(events, 0)];
        for (taken = stat_get(&row->taken); taken != end && next_ticks(row) <= before; count++) {
            if (!wait && !has_room(events))
                return count;
            events_put(events, &row->event[taken % EVENTS_ALONE]);
            atomic_store_explicit(&row->taken, ++taken, memory_order_release);
        }
    }
    return count;
}

void events_take_over(struct events *events)
{
    uint64_t count = stat_get(&events->count);
    const struct event *last = &events->event[(count - 1) & (events->capacity - 1)];
    for (uint64_t i = 0; i < events->rows && last->number == count; i++) {
        struct events_row *row = row_of(events, i);
        const struct event *next = &row->event[row->taken % EVENTS_ALONE];
        if (until_of(row) != row->taken && next->ticks == last->ticks && next->who == last->who &&
            next->address == last->address)
            stat_increase(&row->taken, 1);
    }
}
