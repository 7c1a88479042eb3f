/* The state of one allocator, for files of allocator/ only. Each part is a struct of the file that
 * owns it. In struct allocator the domain's lock guards everything down to `slow`. */
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

/* Segments that are one reusable block, in the order in which they became so. */
struct idle_list {
    struct segment *oldest, *newest;
};

/* reuse/fence.c: blocks that were freed and are not reusable yet. */
struct fences {
    struct fence *pending, *last; /* a list by number, the earliest first */
    struct fence *recording;      /* fences whose event is being recorded */
    struct fence *spare;          /* unused fences, with events to record again */
    struct block_list deferred;   /* freed during a capture: they have no fence yet */
    uint64_t number;              /* of the fence that became pending last */
    uint64_t poll_after;     /* the count of `mallocs` from which the next poll is worthwhile */
    uint64_t captures_ended; /* how often the last active capture has ended */
    /* no_events: the driver cannot record a context event, so each free waits as in strict mode.
     * lanes_over: all work on blocks that were freed on a lane before that has finished. */
    int no_events, lanes_over;
};

/* reuse/context_event.c: work whose effects the host may see; the next free must wait for it. */
struct host_work {
    struct fence *mark; /* after the newest such work; on no list */
    uint64_t marked;    /* marks recorded so far */
    uint64_t unmarked;  /* times that no mark could be recorded: then a free waits for all work */
    uint64_t settled;   /* how many of `unmarked` a free has waited for */
    int unseen;         /* there may be such work at any time: each free waits for all work */
};

/* reuse/look.c: a look that has not ended. */
struct look {
    struct fence *fence; /* NULL: there is none */
    void *control;       /* an event, kept for later looks */
    uint64_t asked_ns;   /* when the device was asked last */
    int is_controlled;   /* the control is recorded */
    int is_late;         /* the control had passed and the fence had not */
    int is_busy;         /* a thread asks the device */
};

/* reuse/fence_wait.c: a crowd is many threads that free faster than the device works. While it
 * lasts, frees wait in line. A turn is a request, or a free behind a fence. */
struct crowd {
    uint64_t alone_of;     /* the thread of the last turn */
    unsigned alone, turns; /* turns of that thread in a row; all turns since the crowd began */
    unsigned least_turns;  /* turns that the crowd lasts at least */
    unsigned waiting;      /* threads that wait for a fence */
    int is_on;
};

/* state/enter.c, context_end.c: whether the driver may be called in the context. */
struct life {
    unsigned calls; /* calls into the driver that are under way */
    int visits;     /* visits on behalf of other contexts that are under way */
    int error; /* a driver error that the context never gets over: the driver serves all requests */
    int away;  /* the context may be about to end: no thread visits it */
    int forgotten; /* the context ends: its blocks are off the books */
};

/* growth.c, last_resort.c */
struct pressure {
    uint64_t bytes; /* asked of the driver at this moment */
    uint64_t
        cornered; /* 1 + driver allocations and frees when a small request last took a large hole */
    uint64_t cornered_until; /* the count of `mallocs` up to which `cornered` holds */
    int pressed;             /* much of the device has been in use: pool.c, is_kept_whole */
    int as_native;           /* large blocks are the driver's own: head of packing.c */
};

/* release.c, segment.c */
struct releases {
    uint64_t idle_clock; /* how many segments have become idle so far */
    uint64_t idle_seen;  /* idle_clock at the last call of release_unused */
    uint64_t uses;       /* requests and frees up to that call */
    int rested;          /* none of either since, and nothing is left to give back */
    /* At work: how many looks memory must be idle for; looks since the last such time; looks since
     * some went back (0: none lately), and driver allocations until then. */
    unsigned patience, looks, since_return;
    uint64_t made;
    uint64_t bytes;   /* of segments that are going back at this moment */
    unsigned batches; /* numbers given to batches of chunks that go back together */
};

/* thread_cache/: guarded by the lock. */
struct caches_state {
    uint64_t looked_at;  /* bytes reserved for small blocks when all caches were last searched */
    uint64_t yielded_at; /* driver allocations when caches were last emptied for a large block */
    uint64_t settled, settled_since; /* requests with the lock since that time (ns) */
    uint64_t more;                   /* bytes that a cache may hold beyond its share */
    uint64_t looks;                  /* successful searches of all caches in that time */
    unsigned hand;      /* step of the size that goes from the transfer cache to the pool next */
    unsigned sharers;   /* thread caches that serve the allocator */
    unsigned contended; /* 0: no request has waited for the lock lately */
};

/* thread_cache/: read and changed by threads without the lock. */
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): counts that threads change lie apart */
struct caches_shared {
    /* Limits in bytes: of the transfer cache, of each thread cache, and of what a thread counts
     * alone. */
    _Atomic int64_t transfer_most, cache_most, alone_most;
    _Alignas(128) _Atomic int64_t transfer_weight;    /* bytes in the transfer cache (transfer.h) */
    _Atomic uint64_t transfer_used[CACHE_STEPS / 64]; /* a bit by step: the list may hold blocks */
    struct transfer_list
        *transfer; /* by step; in pages of their own, most of which are never touched */
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): shared lines lie apart from the rest */
struct allocator {
    struct domain *domain;
    const struct device_ops *ops;
    void *device;
    uint64_t context; /* identifies the context in lanes (lane_ops) */
    struct device_stats *stats;
    uint64_t limit, capacity; /* bytes; capacity: of the device, or the limit if that is less */
    struct arena *arena;      /* or NULL. Up to here it is a cache line that hardly ever changes */
    struct bins pool[POOLS];
    struct block *taken; /* from a pool by the last request; NULL if a pool has changed since */
    struct segment *segments;
    struct idle_list idle[STAT_POOLS]; /* by the statistics pool of the segment */
    struct fences fences;
    struct host_work host_work;
    struct look look;
    struct crowd crowd;
    uint64_t mallocs, frees; /* with the lock, so far */
    struct life life;
    struct pressure growth;
    struct releases release;
    struct caches_state caches;
    unsigned ordinal; /* the number of its device */
    struct allocator *next;

    _Alignas(128) _Atomic int slow; /* enum slow_kind, for threads without the lock */
    uint16_t number;                /* `owner` in its blocks */
    struct caches_shared shared;
};

/* Must the next free wait for work whose effects the host may see? */
static inline int allocator_owes_host(const struct allocator *a)
{
    return a->host_work.mark || a->host_work.settled != a->host_work.unmarked ||
           a->host_work.unseen;
}

/* Which calls may not do without the lock: none, frees, or all. */
enum slow_kind { SLOW_NOBODY, SLOW_FREES, SLOW_ALL };

#endif
