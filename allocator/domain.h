/* The state of an allocator and of the domain that all allocators of a process share, for the
 * allocator's own files. Everything but options is guarded by the lock. */
#ifndef CACHALOT_ALLOCATOR_DOMAIN_H
#define CACHALOT_ALLOCATOR_DOMAIN_H

#include <pthread.h>

#include "allocator/claim.h"
#include "allocator/lane_books.h"
#include "allocator/slab.h"
#include "stats/events.h"
#include "stats/sites.h"

#define CACHE_MOST (256 * 1024) /* largest block of a thread cache */
#define CACHE_STEPS (CACHE_MOST / BLOCK_GRAIN)

struct fence;

struct allocator {
    struct domain *domain;
    const struct device_ops *ops;
    void *device;
    uint64_t context; /* its name in lanes */
    unsigned ordinal;
    struct device_stats *stats;
    uint64_t limit;
    struct tree pool[POOLS];
    struct block *spare_blocks[CACHE_STEPS]; /* spilled by thread caches, by size */
    uint64_t spare_bytes;
    struct segment *segments;
    struct idle_list {
        struct segment *oldest, *newest;
    } idle[STAT_POOLS];                   /* by what they are booked as */
    struct fence *pending, *pending_last; /* by number */
    struct fence *recording;
    struct fence *spare;         /* with events to use again */
    struct fence *host_work;     /* what a free must still wait for; on no list */
    uint64_t host_works;         /* marked so far */
    uint64_t host_work_unmarked; /* not 0: it could not be marked, a free waits for everything */
    struct block_list deferred;  /* freed during a capture: no fence yet */
    uint64_t idle_clock, fence_number, growing_bytes, mallocs, frees, poll_after;
    uint64_t captures_ended; /* how often all had */
    unsigned calls;          /* into the device, under way now */
    int no_events;           /* the driver cannot mark a context: free as in strict mode */
    int error;               /* of the context, for good: everything goes to the driver */
    int forgotten;
    struct allocator *next;

    /* What threads without the lock look at, apart from what changes all the time. */
    _Alignas(64) _Atomic int slow; /* enum slow_kind */
    char apart[60];
};

/* Must all come by the lock, or frees at least? */
enum slow_kind { SLOW_NOBODY, SLOW_FREES, SLOW_ALL };

struct domain {
    pthread_mutex_t lock;
    pthread_mutex_t pressure; /* who makes room; taken without the lock */
    struct options options;
    struct map listed; /* blocks by address, from when they are first handed out */
    struct thread_cache *caches;
    struct tree segments;
    struct slab blocks, segment_slab, fences, allocators, cache_slab;
    struct allocator *first;
    struct lane lane;
    struct events *events; /* NULL: nobody wants them */
    struct sites *sites;
    int recorded;  /* one of them is there */
    int dedicated; /* blocks >= 2 MiB get segments of their own */
};

/* Locks and unlocks for a change of this allocator's numbers; in debug builds checks it when
 * leaving. */
void allocator_enter(struct allocator *allocator);
void allocator_leave(struct allocator *allocator);

/* The same around a call into the device, which the end of a context waits for. */
void allocator_call(struct allocator *allocator);
void allocator_return(struct allocator *allocator);

/* Is everything true that its books say? Walks all blocks. */
int allocator_is_valid(const struct allocator *allocator);

#endif
