/* The series of a device: allocated, reserved and free memory over the whole life of the process.
 *
 * The points are steps: each holds until the next one, with the most allocated and reserved, and the
 * least free, in that time. The service thread adds points. A full series gives up one point for each
 * new one: of the points older than SERIES_WHOLE, the two neighbours that together cover the shortest
 * time become one. So old points thin out evenly, and neither a peak nor the last minute is lost.
 *
 * The process works on its own copy and shows readers what has changed. It moves points towards the
 * front, one after the other: whenever it is killed, each point is there once or twice. A reader
 * therefore skips points that are not later than the one before. */
#ifndef CACHALOT_STATS_PAGE_SERIES_H
#define CACHALOT_STATS_PAGE_SERIES_H

#include "stats/counters/stat_value.h"

#define SERIES_POINTS 2046
#define SERIES_MOST 8             /* devices of a process that have a series: 256 KiB in all */
#define SERIES_TICK_NS 10000000   /* the unit of times: 497 days have a number */
#define SERIES_GRAIN 512          /* the unit of bytes, as blocks have; rounded up */
#define SERIES_WHOLE 6000         /* ticks: the last minute is not thinned */
#define SERIES_UNKNOWN UINT32_MAX /* of `free`: the driver was not asked yet */

struct series_point {
    _Atomic uint32_t time, allocated, reserved,
        free; /* time: since the process's start of service */
};

struct series {
    stat_value device; /* its row, plus one; 0: none */
    stat_value count;
    uint64_t unused[2];
    struct series_point point[SERIES_POINTS];
};

/* What a look at a device has found, in ns and bytes. free UINT64_MAX: not known. */
struct series_look {
    uint64_t time_ns, allocated, reserved, free;
};

/* Adds a look to the process's own series `own`, and to `told`, its copy for readers. Returns 0 if the
 * last point says the same. */
int series_add(struct series *own, struct series *told, const struct series_look *look);

/* Calls `take` for each point of a series that another process may have written, in order of time. */
void series_walk(const struct series *series,
                 void (*take)(void *context, const struct series_look *point), void *context);

#endif
