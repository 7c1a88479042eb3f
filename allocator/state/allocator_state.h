/* The books of one allocator, for the allocator's own files. Everything down to `slow` is guarded
 * by the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_STATE_ALLOCATOR_STATE_H
#define CACHALOT_ALLOCATOR_STATE_ALLOCATOR_STATE_H

#include <stdint.h>

#include "allocator/state/block.h"
#include "allocator/base/device.h"
#include "allocator/state/transfer_list.h"
#include "allocator/base/size_bins.h"
#include "stats/counters/stats.h"

#define CACHE_MOST MIB /* largest block of a thread cache: all of the small pool */
#define CACHE_STEPS (CACHE_MOST / BLOCK_GRAIN)

struct domain;
struct fence;

/* Segments that are one reusable block, by when they became so. */
struct idle_list {
    struct segment *oldest, *newest;
};

/* reuse/fence.c: what has been freed and is not reusable yet. */
struct fences {
    struct fence *pending, *last; /* by number, the earliest first */
    struct fence *recording;
    struct fence *spare;        /* with events to use again */
    struct block_list deferred; /* freed during a capture: no fence yet */
    uint64_t number;            /* of the last one that became pending */
    uint64_t poll_after;        /* `mallocs` from which a look is worth while again */
    uint64_t captures_ended;    /* how often all captures had */
    /* The driver cannot record an event of the context: a free waits as in strict mode. lanes_over: what was freed on a lane
     * before has no work left. */
    int no_events, lanes_over;
};

/* reuse/context_event.c: work that the host may see, and which a free must still wait for. */
struct host_work {
    struct fence *mark; /* of the newest; on no list */
    uint64_t marked;    /* so far */
    uint64_t unmarked;  /* times that it could not be marked: a free waits for all work */
    uint64_t settled;   /* of these */
};

/* reuse/fence_wait.c: do threads free faster than the device gets on? Then frees wait in line. */
struct crowd {
    uint64_t alone_of;     /* the thread of the last turn */
    unsigned alone, turns; /* turns in a row of that thread; of all, since the crowd began */
    unsigned least_turns;  /* that a crowd lasts */
    unsigned waiting;      /* waits for fences under way */
    int is_on;
};

/* state/enter.c, context_end.c: may the driver be called in the context? */
struct life {
    unsigned calls; /* into the driver, under way */
    int visits;     /* for other contexts, under way */
    int error; /* of the driver, which the context never gets over: everything is the driver's own */
    int away;  /* it may be about to end: nobody calls into it for others */
    int forgotten; /* it ends */
};

/* growth.c, last_resort.c */
struct pressure {
    uint64_t bytes; /* asked of the driver, right now */
    uint64_t
        cornered; /* 1 + driver's allocations and frees when a small request last took a large hole */
    uint64_t cornered_until; /* `mallocs` up to which that counts */
    int pressed;             /* much of the device was in use once: pool.c, is_kept_whole */
    int as_native;           /* large blocks are the driver's own: packing.c */
};

/* release.c */
struct releases {
    uint64_t idle_clock; /* segments that became idle so far */
    uint64_t idle_seen;  /* that, at the last look for what others could use */
    unsigned batches;    /* of chunks that go back together, so far */
};

/* thread_cache/: with the lock. */
struct caches_state {
    uint64_t
        looked_at; /* bytes reserved for small blocks when all caches were last looked through */
    uint64_t yielded_at; /* allocations of the driver when caches last yielded to large blocks */
    uint64_t settled, settled_since; /* requests by the lock since that time, ns */
    uint64_t more;                   /* bytes that a cache may hold beyond its part */
    uint64_t looks;                  /* that found something, of those requests */
    unsigned hand;      /* the size that goes from the transfer cache to the pool next */
    unsigned sharers;   /* caches that serve the allocator */
    unsigned contended; /* 0: no request by the lock has had to wait for it lately */
};

/* thread_cache/: what threads without the lock look at. */
struct caches_shared {
    /* Bytes that may lie in the transfer cache, and in each cache; that a thread counts alone. */
    _Atomic int64_t transfer_most, cache_most, alone_most;
    _Alignas(128) _Atomic int64_t transfer_weight;    /* what lies there */
    _Atomic uint64_t transfer_used[CACHE_STEPS / 64]; /* bit: a list that was not empty */
    struct transfer_list
        *transfer; /* by size; in pages of their own, most of which are never touched */
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): lines that threads look at lie apart */
struct allocator {
    struct domain *domain;
    const struct device_ops *ops;
    void *device;
    uint64_t context; /* its name in lanes */
    struct device_stats *stats;
    uint64_t limit, capacity; /* bytes; capacity: of the device, or less if that is the limit */
    struct arena *arena;      /* that grows, or NULL. Up to here a line that hardly ever changes */
    struct bins pool[POOLS];
    struct block *taken; /* from a pool by the last request, if none has changed since */
    struct segment *segments;
    struct idle_list idle[STAT_POOLS]; /* by what they are booked as */
    struct fences fences;
    struct host_work host_work;
    struct crowd crowd;
    uint64_t mallocs, frees;
    struct life life;
    struct pressure growth;
    struct releases release;
    struct caches_state caches;
    unsigned ordinal; /* of its device */
    struct allocator *next;

    _Alignas(128) _Atomic int slow; /* enum slow_kind, for threads without the lock */
    uint16_t number;                /* in its blocks (owner) */
    struct caches_shared shared;
};

/* Is there something for the host that a free must wait for? */
static inline int allocator_owes_host(const struct allocator *a)
{
    return a->host_work.mark || a->host_work.settled != a->host_work.unmarked;
}

/* Must all come by the lock, or frees at least? */
enum slow_kind { SLOW_NOBODY, SLOW_FREES, SLOW_ALL };

#endif
