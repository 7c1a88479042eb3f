/* The domain that all allocators of a process share, for the allocator's own files. Everything but
 * options is guarded by the lock. */
#ifndef CACHALOT_ALLOCATOR_STATE_DOMAIN_H
#define CACHALOT_ALLOCATOR_STATE_DOMAIN_H

#include <pthread.h>

#include "allocator/state/allocator_state.h"
#include "allocator/state/block_claim.h"
#include "allocator/state/lane_state.h"
#include "allocator/base/lock.h"
#include "allocator/base/slab.h"
#include "stats/events/events.h"
#include "stats/events/sites.h"

/* What was freed last (last_freed.c). */
struct kept {
    struct block *block; /* NULL: nothing */
    uint64_t more;       /* bytes behind it that it will be merged with */
    int split;           /* then it is still a part of its segment */
    uint64_t largest;    /* reusable block, when it is taken again */
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
    struct tree segments;
    struct metadata metadata;
    struct slab blocks, segment_slab, fences, allocators, cache_slab;
    struct allocator *first;
    struct lane lane;
    struct kept kept;
    struct events *events; /* NULL: nobody wants them */
    struct sites *sites;
    int recorded;   /* one of them is there */
    uint32_t names; /* of blocks (block_layout.h) */
    int dedicated;  /* blocks >= 2 MiB get segments of their own */
};

/* What is kept goes into its pool (last_freed.c). */
void kept_put(struct domain *domain);
static inline void domain_lock(struct domain *domain)
{
    lock_take(&domain->lock);
    if (domain->kept.block)
        kept_put(domain);
}

static inline void domain_unlock(struct domain *domain)
{
    lock_give(&domain->lock);
}

/* Locks and unlocks for a change of this allocator's numbers; in debug builds checks it when
 * leaving. */
void allocator_enter(struct allocator *allocator);
void allocator_leave(struct allocator *allocator);

/* The same around a call into the device, which the end of a context waits for. */
void allocator_call(struct allocator *allocator);
void allocator_return(struct allocator *allocator);

/* May its context be called into for others? Then whoever ends it waits until that is over. It may
 * be a forgotten one: its `next` may have been followed after a driver's call. soon: waits until it
 * is known, the lock dropped, but not for ever. */
int allocator_visit(struct allocator *allocator);
int allocator_visit_soon(struct allocator *allocator);
void allocator_visit_over(struct allocator *allocator);

/* Gives back what is idle there, at least `bytes` if there is so much: its frees are waited for up
 * to `fences_ns`, and work that keeps memory from being idle up to `idle_ns`. Returns bytes. */
uint64_t allocator_give_back(struct allocator *allocator, uint64_t bytes, uint64_t fences_ns,
                             uint64_t idle_ns);

/* Waits until no context is ending in another thread, not for ever: until PRESSURE_WAIT_NS after
 * `since_ns`. The lock is dropped meanwhile. */
void allocator_wait_for_ends(struct allocator *allocator, uint64_t since_ns);

/* Is everything true that its books say? Walks all blocks. */
int allocator_is_valid(const struct allocator *allocator);

#endif
