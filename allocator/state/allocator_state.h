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
    struct idle_list {
        struct segment *oldest, *newest;
    } idle[STAT_POOLS];                   /* by what they are booked as */
    struct fence *pending, *pending_last; /* by number */
    struct fence *recording;
    struct fence *spare;         /* with events to use again */
    struct fence *host_work;     /* what a free must still wait for; on no list */
    uint64_t host_works;         /* marked so far */
    uint64_t host_work_unmarked; /* times that it could not be marked: a free waits for all work */
    uint64_t host_work_settled;  /* of these */
    struct block_list deferred;  /* freed during a capture: no fence yet */
    uint64_t idle_clock, fence_number, growing_bytes, mallocs, frees, poll_after, alone_of;
    uint64_t captures_ended; /* how often all had */
    /* Of its device; calls, and waits by fence_ask, under way now; fence_note_turn; arena_release. */
    unsigned ordinal, calls, waiting, alone, turns, crowd_turns, batches;
    int pressed;   /* much of the device was in use once: pool.c, is_kept_whole */
    int crowded;   /* threads free faster than the device gets on: frees wait in line */
    int as_native; /* large blocks are the driver's own: packing.c */
    /* The driver cannot mark a context: free as in strict mode; what was freed on a lane before has no work left. */
    int no_events, lanes_over;
    /* The context is of no use: everything goes to the driver. It may be about to end: nobody calls
     * into it for others; who does. */
    int error, forgotten, away, visits;
    uint64_t idle_seen; /* idle_clock at the last look for what others could use: once a second */
    /* When all caches were last looked through, bytes reserved for small blocks; when they last
     * yielded to large blocks, chunks and segments made so far. */
    uint64_t looked_at, yielded_at, cornered, cornered_until; /* the last two: packing.c */
    /* Which size goes to the pool next; caches that serve it; 0: no request by the lock has had to
     * wait for it lately. */
    unsigned spare_hand, sharers, contended;
    /* Requests by the lock, ns, bytes: pace; of those, looks that found something: thread_caches_make. */
    uint64_t settled, settled_since, cache_more, looks;
    struct allocator *next;

    /* What threads without the lock look at, apart from what changes all the time. */
    _Alignas(128) _Atomic int slow; /* enum slow_kind */
    uint16_t number;                /* in its blocks (owner) */
    /* Bytes that may be spare; in each cache; that a thread counts alone. */
    _Atomic int64_t spare_most, cache_most, alone_most;
    _Alignas(128) _Atomic int64_t spare_weight;    /* what is spare */
    _Atomic uint64_t spare_used[CACHE_STEPS / 64]; /* bit: a list that was not empty */
    struct spare_list *spares; /* by size; in pages of their own, most of which are never touched */
};

/* Is there something for the host that a free must wait for? */
static inline int allocator_owes_host(const struct allocator *a)
{
    return a->host_work || a->host_work_settled != a->host_work_unmarked;
}

/* Must all come by the lock, or frees at least? */
enum slow_kind { SLOW_NOBODY, SLOW_FREES, SLOW_ALL };

#endif
