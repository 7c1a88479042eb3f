/* Thread caches under the lock: the calling thread's own cache, and all caches together, which are
 * stopped, emptied or looked through. All functions need the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_LOCKED_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_LOCKED_H

#include "allocator/base/policy.h"
#include "allocator/thread_cache/limits.h"

/* Begins a request: folds what the thread counted alone, and makes its cache serve `allocator`. A
 * fold writes some thirty cache lines that the last holder of the lock wrote too. So where threads
 * contend, it is left out until a thread reaches its limits. The peaks of a shared allocator are
 * right within alone_limit for each thread anyway. */
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

/* Call it before a large block of mapped memory is handed out: `size` bytes, of which `requested`
 * are asked for. Such a block raises no peaks but those of its own pool and of all blocks. If none
 * of these is near, nothing is folded. Returns 1 if the cache was folded. */
int thread_cache_settle_touched(struct thread_cache *cache, struct allocator *allocator,
                                uint64_t size, uint64_t requested);
static inline int thread_cache_settle_large(struct allocator *allocator, uint64_t size,
                                            uint64_t requested)
{
    struct thread_cache *cache = thread_cache_of(allocator->domain);
    if (!cache ||
        (cache->allocator == allocator && !cache->touched && !thread_cache_knows_limits(cache)))
        return 0;
    return thread_cache_settle_touched(cache, allocator, size, requested);
}

/* Takes a block of `size` bytes out of the calling thread's cache, filled from the transfer cache.
 * The block is in no pool, and not booked as reusable. Returns NULL if there is none. */
struct block *thread_cache_find(struct allocator *allocator, uint64_t size);

/* Keeps a freed block that is reusable at once in the calling thread's cache. A full cache spills.
 * Returns 1, or 0 if the cache does not take it. */
int thread_cache_keep(struct block *block);

/* Where threads contend, takes more blocks of `size` bytes from the pool, up to a batch, for the
 * next requests of the calling thread. */
void thread_cache_stock(struct allocator *allocator, uint64_t size);

/* thread_caches_stop: no thread is in a cache that serves this device (NULL: any device) until
 * go_on. The caller must keep the lock until then, unless whoever gives the lock back has the caller
 * call go_on (domain_rest). thread_caches_serve: is there such a cache? */
void thread_caches_stop(struct domain *domain, const struct device_stats *stats);
void thread_caches_go_on(struct domain *domain, const struct device_stats *stats);
int thread_caches_serve(const struct domain *domain, const struct device_stats *stats);

/* A number that is another one after a thread has used a cache that serves the allocator. */
uint64_t thread_caches_uses(const struct allocator *allocator);

/* Merges neighbours from the allocator's caches and its pool into one reusable block of at least
 * `size` bytes, if there are any such. Nothing else is merged. Returns 1, or 0 if there are none,
 * or such looks have cost more than memory lately. */
int thread_caches_assemble(struct allocator *allocator, uint64_t size);

/* Call it before large blocks of mapped memory grow by `size` bytes. Gives all that is cached back
 * to the pool, since one cached block keeps a chunk from being idle. Does so only when memory has
 * grown by a quarter of what is cached. Returns 1 if some block went back. */
int thread_caches_yield(struct allocator *allocator, uint64_t size);

/* thread_caches_empty: gives all that the caches of the allocator's device hold back to the pool.
 * Returns bytes. thread_caches_pool: the same while they are stopped. thread_caches_leave: while
 * they are stopped, makes them leave this allocator. */
uint64_t thread_caches_empty(struct allocator *allocator);
uint64_t thread_caches_pool(struct allocator *allocator);
void thread_caches_leave(struct allocator *allocator);

/* Books a cached block of `size` bytes as not reusable. */
void thread_cache_book_out(struct allocator *allocator, uint64_t size);

#endif
