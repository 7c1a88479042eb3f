/* The domain that all allocators of a process share, for the allocator's own files. Everything but
 * options is guarded by the lock. */
#ifndef CACHALOT_ALLOCATOR_STATE_DOMAIN_H
#define CACHALOT_ALLOCATOR_STATE_DOMAIN_H

#include <pthread.h>

#include "allocator/state/allocator_state.h"
#include "allocator/state/block_claim.h"
#include "allocator/state/lane_state.h"
#include "allocator/base/lock.h"
#include "allocator/base/options.h"
#include "allocator/base/slab.h"
#include "stats/events/events.h"
#include "stats/events/sites.h"

/* What was freed last (last_freed.c). */
struct last_freed {
    struct block *block;          /* NULL: nothing */
    uint64_t more;                /* bytes behind it that it will be merged with */
    int split;                    /* then it is still a part of its segment */
    uint64_t largest;             /* reusable block, when it is taken again */
    void (*put)(struct domain *); /* puts it into its pool: last_freed.c */
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): lanes have lines of their own */
struct domain {
    struct map listed; /* blocks by address, from when they are first handed out */
    struct lock lock;
    pthread_mutex_t pressure; /* who makes room; taken without the lock */
    unsigned pressing;        /* threads that make room, or wait for their turn */
    unsigned ending;          /* contexts, right now */
    uint64_t ended;           /* so far */
    struct options options;
    struct thread_cache *caches;
    struct treap segments;
    struct metadata metadata;
    struct slab blocks, segment_slab, fences, allocators, cache_slab;
    struct allocator *first;
    struct lane lane;
    struct last_freed last_freed;
    struct events *events; /* NULL: nobody wants them */
    struct sites *sites;
    int recorded;                              /* one of them is there */
    uint32_t names;                            /* of blocks (block_layout.h) */
    int dedicated;                             /* blocks >= 2 MiB get segments of their own */
    int (*is_valid)(const struct allocator *); /* check.c; for assertions */
};

static inline void domain_lock(struct domain *domain)
{
    lock_take(&domain->lock);
    if (domain->last_freed.block)
        domain->last_freed.put(domain);
}

static inline void domain_unlock(struct domain *domain)
{
    lock_give(&domain->lock);
}

#endif
