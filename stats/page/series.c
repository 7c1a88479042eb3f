#include "stats/page/series.h"

#include <stddef.h>

static uint32_t get(const _Atomic uint32_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

static void set(_Atomic uint32_t *number, uint32_t to)
{
    atomic_store_explicit(number, to, memory_order_relaxed);
}

static void copy(struct series_point *to, const struct series_point *from)
{
    set(&to->time, get(&from->time));
    set(&to->allocated, get(&from->allocated));
    set(&to->reserved, get(&from->reserved));
    set(&to->free, get(&from->free));
}

static uint32_t grains(uint64_t bytes)
{
    uint64_t count = bytes / SERIES_GRAIN + (bytes % SERIES_GRAIN != 0);
    return count < SERIES_UNKNOWN ? (uint32_t)count : SERIES_UNKNOWN - 1;
}

static struct series_point point_of(const struct series_look *look)
{
    uint64_t ticks = look->time_ns / SERIES_TICK_NS;
    return (struct series_point){ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX,
                                 grains(look->allocated), grains(look->reserved),
                                 look->free == UINT64_MAX ? SERIES_UNKNOWN : grains(look->free)};
}

/* Makes one point of two that follow each other, at the place of the first. */
static void join(struct series_point *first, const struct series_point *second)
{
    if (get(&second->allocated) > get(&first->allocated))
        set(&first->allocated, get(&second->allocated));
    if (get(&second->reserved) > get(&first->reserved))
        set(&first->reserved, get(&second->reserved));
    if (get(&second->free) < get(&first->free))
        set(&first->free, get(&second->free));
}

/* Returns the point that joins the one before it: the two cover the shortest time. Where all points
 * are of the last minute, the oldest of them do. */
static unsigned shortest(const struct series *own, uint32_t now)
{
    uint32_t least = UINT32_MAX;
    unsigned best = 1;
    for (unsigned i = 1; i + 1 < SERIES_POINTS; i++) {
        uint32_t end = get(&own->point[i + 1].time);
        uint32_t covered = end - get(&own->point[i - 1].time);
        if (now - end < SERIES_WHOLE)
            break;
        if (covered < least) {
            least = covered;
            best = i;
        }
    }
    return best;
}

/* Makes room for a point. Returns the first place that has changed. */
static unsigned thin(struct series *own, uint32_t now)
{
    unsigned joined = shortest(own, now);
    join(&own->point[joined - 1], &own->point[joined]);
    for (unsigned i = joined; i + 1 < SERIES_POINTS; i++)
        copy(&own->point[i], &own->point[i + 1]);
    stat_set(&own->count, SERIES_POINTS - 1);
    return joined - 1;
}

int series_add(struct series *own, struct series *told, const struct series_look *look)
{
    struct series_point new = point_of(look);
    unsigned count = (unsigned)stat_get(&own->count), from = count;
    struct series_point *last = count ? &own->point[count - 1] : NULL;
    if (last && get(&last->allocated) == new.allocated &&get(&last->reserved) ==
                    new.reserved &&get(&last->free) == new.free)
        return 0;
    if (last && new.time <= get(&last->time)) {
        join(last, &new);
        from = count - 1;
    } else {
        if (count == SERIES_POINTS)
            from = thin(own, new.time);
        copy(&own->point[stat_get(&own->count)], &new);
        stat_increase(&own->count, 1);
    }
    count = (unsigned)stat_get(&own->count);
    for (unsigned i = from; i < count; i++) {
        copy(&told->point[i], &own->point[i]);
        atomic_signal_fence(memory_order_seq_cst); /* in this order, also if killed */
    }
    atomic_store_explicit(&told->count, count, memory_order_release);
    return 1;
}

void series_walk(const struct series *series,
                 void (*take)(void *context, const struct series_look *point), void *context)
{
    uint64_t count = atomic_load_explicit(&series->count, memory_order_acquire), before = 0;
    for (unsigned i = 0; i < SERIES_POINTS && i < count; i++) {
        struct series_point point;
        copy(&point, &series->point[i]);
        if (i && point.time <= before)
            continue;
        before = point.time;
        const struct series_look look = {
            .time_ns = (uint64_t)point.time * SERIES_TICK_NS,
            .allocated = (uint64_t)point.allocated * SERIES_GRAIN,
            .reserved = (uint64_t)point.reserved * SERIES_GRAIN,
            .free = point.free == SERIES_UNKNOWN ? UINT64_MAX : (uint64_t)point.free * SERIES_GRAIN,
        };
        take(context, &look);
    }
}
