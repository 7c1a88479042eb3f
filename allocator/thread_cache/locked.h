/* Thread caches under the lock: the calling thread's own; all together, stopped, emptied, looked
 * through. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_LOCKED_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_LOCKED_H

#include "allocator/base/policy.h"
#include "allocator/thread_cache/limits.h"

/* At the begin of a request: what the thread counted alone is folded, and its cache serves
 * `allocator` from now on. A fold writes some thirty lines that the last one to hold the lock
 * wrote, too. So where threads wait for each other it is left out, until one is at its limits: an
 * allocator that threads share has peaks within alone_limit a thread anyway. */
void thread_cache_settle_with(struct thread_cache *cache, struct allocator *allocator);
static inline void thread_cache_settle_own(struct thread_cache *cache, struct allocator *allocator)
{
    struct lock *lock = &allocator->domain->lock;
    int later = lock->waited && thread_cache_knows_limits(cache) && caches_are_shared(allocator);
    if (lock->waited)
        allocator->caches.contended = policy.contended;
    else if (allocator->caches.contended)
        allocator->caches.contended--;
    lock->waited = 0;
    if (++allocator->caches.settled == policy.pace)
        thread_cache_pace(allocator);
    if (cache->allocator != allocator || (cache->touched && !later))
        thread_cache_settle_with(cache, allocator);
    else if (!cache->touched)
        thread_cache_forget_limits(cache);
}

static inline void thread_cache_settle(struct allocator *allocator)
{
    struct thread_cache *cache = thread_cache_of(allocator->domain);
    if (cache)
        thread_cache_settle_own(cache, allocator);
}

/* Before a large block of `size` in mapped memory is handed out. That raises no peak but its own
 * pool's and those of all: unless one of these is near, nothing is folded. Returns 1 if it was. */
int thread_cache_settle_large(struct allocator *allocator, uint64_t size, uint64_t requested);

/* A block of `size` from the calling thread's cache or the spare blocks, in no pool and out of the
 * books of reusable ones; or NULL. */
struct block *thread_cache_find(struct allocator *allocator, uint64_t size);

/* A freed block that is reusable at once stays in the calling thread's cache, if that takes it: 1.
 * A full cache spills. */
int thread_cache_keep(struct block *block);

/* Where threads are in each other's way, more of `size` from the pool, as many as go round at once,
 * for the calling thread's next requests. */
void thread_cache_stock(struct allocator *allocator, uint64_t size);

/* All caches that serve this device (NULL: all): no thread is in its cache until
 * go_on. The lock must be kept. */
void thread_caches_stop(struct domain *domain, const struct device_stats *stats);
void thread_caches_go_on(struct domain *domain, const struct device_stats *stats);
int thread_caches_serve(const struct domain *domain, const struct device_stats *stats);

/* Some of what the allocator's caches and its pool hold becomes one reusable block of at least
 * `size`, if there is any such, unless looks have cost more than memory lately: 1. Nothing else is
 * merged. */
int thread_caches_assemble(struct allocator *allocator, uint64_t size);

/* Before what lies among large blocks of mapped memory grows by `size`: all that is cached goes back to the
 * pool, so that no chunk is kept from it by what nobody uses; once for each quarter of that that was
 * grown by. 1: some did. */
int thread_caches_yield(struct allocator *allocator, uint64_t size);

/* Everything that caches of the allocator's device hold goes back to the pool; returns bytes. pool:
 * while they are stopped. leave: likewise, and none serves this allocator any more. */
uint64_t thread_caches_empty(struct allocator *allocator);
uint64_t thread_caches_pool(struct allocator *allocator);
void thread_caches_leave(struct allocator *allocator);

/* A cached block is no longer reusable, for the books. */
void thread_cache_book_out(struct allocator *allocator, uint64_t size);

#endif
