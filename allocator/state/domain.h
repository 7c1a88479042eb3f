/* The domain: what all allocators of a process share, for files of allocator/ only. The lock guards
 * everything except options. */
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

/* The last freed block (last_freed.c). */
struct last_freed {
    struct block *block; /* NULL: there is none */
    uint64_t more;       /* bytes of the reusable block behind it, with which it will merge */
    int split;           /* even merged it is only a part of its segment */
    uint64_t largest;    /* bytes of the largest reusable block once it is taken again */
    void (*put)(struct domain *); /* puts the block into its pool */
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the map has a cache line of its own */
struct domain {
    struct page_map listed; /* blocks by address, from their first use by the program on */
    struct lock lock;
    pthread_mutex_t pressure; /* held by the thread that makes room; taken without the lock */
    unsigned pressing;        /* threads that make room or wait for `pressure` */
    unsigned ending;          /* contexts that are ending */
    uint64_t ended;           /* contexts that have ended so far */
    struct options options;
    struct thread_cache *caches;
    unsigned threads; /* that have a cache */
    struct treap segments;
    struct metadata metadata;
    struct slab blocks, segment_slab, fences, allocators, cache_slab, points;
    struct allocator *first;
    struct lane lane;
    struct last_freed last_freed;
    struct events *events; /* NULL: not recorded; the same for sites */
    struct sites *sites;
    uint32_t names; /* the last name that a block was given (block_layout.h) */
    int dedicated;  /* blocks of 2 MiB or more get segments of their own */
    int (*is_valid)(const struct allocator *); /* check.c, for assertions */
    uint64_t rest_uses; /* requests and frees up to the last call of domain_rest */
    int rests;          /* all thread caches are stopped until the next use (domain_rest) */
};

/* Returns the block that begins at this address and was handed out since it was last merged, or
 * NULL. */
static inline struct block *domain_block_at(const struct domain *domain, uint64_t address)
{
    return block_of_listed(page_map_find(&domain->listed, address));
}

/* Takes the lock. The last freed block goes into its pool first: only the next request may find it
 * outside. */
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
