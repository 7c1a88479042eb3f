/* Thread caches: how far their threads may count alone without passing a peak, when what they
 * counted is folded into the numbers, and how much a cache may hold. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_LIMITS_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_LIMITS_H

#include "allocator/thread_cache/thread_cache.h"

/* So that the limits are looked up at the next request: until then nothing may be taken or given.
 */
static inline void thread_cache_forget_limits(struct thread_cache *cache)
{
    cache->least_bytes = cache->own_bytes = INT64_MAX / 2; /* also when it moves a little */
    cache->peak_bytes = INT64_MIN / 2;
    cache->most_bytes = -1;
}

static inline int thread_cache_knows_limits(const struct thread_cache *cache)
{
    return cache->most_bytes >= 0;
}

/* As they are now. What other threads count alone is not in it. */
void thread_cache_set_limits(struct thread_cache *cache);

/* Blocks came in or went out uncounted: what is known of the limits is as far away as before. */
void thread_cache_moved(struct thread_cache *cache, uint64_t size, int64_t blocks);

static inline int64_t cache_limit(const struct thread_cache *cache)
{
    return atomic_load_explicit(&cache->allocator->cache_most, memory_order_relaxed);
}

static inline int64_t alone_limit(const struct thread_cache *cache)
{
    return atomic_load_explicit(&cache->allocator->alone_most, memory_order_relaxed);
}

/* What caches hold is missing where it could be split or merged, so that more is reserved, or
 * looked for (thread_caches_make). It is worth that only where they miss all the time: after each
 * PACE requests that fold (small ones by the lock, and large ones in ordinary segments) the clock
 * says whether one may hold a MiB more, or half as much more; half as much also after each look that
 * found something, where threads share. After CONTENDED of them of which none had to wait for the lock, threads are
 * in each other's way no more (transfer.h). */
#define PACE 1024
#define CONTENDED 64
void thread_cache_pace(struct allocator *allocator);
void thread_cache_hold_less(struct allocator *allocator);
void thread_cache_note_most(struct allocator *allocator);

/* How much others may have counted alone while one thread passes a peak. */
void thread_cache_note_uncertainty(const struct allocator *allocator);

/* What the thread counted alone is added to the numbers, which are being changed. */
void thread_cache_fold(struct thread_cache *cache);

/* At the begin of a request: what the thread counted alone is folded, and its cache serves
 * `allocator` from now on. A fold writes some thirty lines that the last one to hold the lock
 * wrote, too. So where threads wait for each other it is left out, until one is at its limits: an
 * allocator that threads share has peaks within alone_limit a thread anyway. */
void thread_cache_settle_with(struct thread_cache *cache, struct allocator *allocator);
static inline void thread_cache_settle_own(struct thread_cache *cache, struct allocator *allocator)
{
    struct lock *lock = &allocator->domain->lock;
    int later = lock->waited && thread_cache_knows_limits(cache) && spare_is_shared(allocator);
    if (lock->waited)
        allocator->contended = CONTENDED;
    else if (allocator->contended)
        allocator->contended--;
    lock->waited = 0;
    if (++allocator->settled == PACE)
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

#endif
