/* The state of an allocator and of the domain that all allocators of a process share, for the
 * allocator's own files. Everything but options is guarded by the lock. */
#ifndef CACHALOT_ALLOCATOR_DOMAIN_H
#define CACHALOT_ALLOCATOR_DOMAIN_H

#include <pthread.h>

#include "allocator/block.h"
#include "allocator/lane_books.h"
#include "allocator/slab.h"

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
    struct arena *arena; /* NULL: no mapped memory */
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
    unsigned calls; /* into the device, under way now */
    int pressed;    /* the device was full once: segments of their own, not split */
    int no_events;  /* the driver cannot mark a context: free as in strict mode */
    int error;      /* of the context, for good: everything goes to the driver */
    int forgotten;
    struct allocator *next;
};

struct domain {
    pthread_mutex_t lock;
    pthread_mutex_t pressure; /* who makes room; taken without the lock */
    struct options options;
    struct map live;
    struct tree segments;
    struct slab blocks, segment_slab, fences, allocators;
    struct allocator *first;
    struct lane lane;
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
