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
    return atomic_load_explicit(&cache->allocator->shared.cache_most, memory_order_relaxed);
}

static inline int64_t alone_limit(const struct thread_cache *cache)
{
    return atomic_load_explicit(&cache->allocator->shared.alone_most, memory_order_relaxed);
}

/* What caches hold is missing where it could be split or merged, so that more is reserved, or
 * looked for (thread_caches_assemble). It is worth that only where they miss all the time: after each
 * policy.pace requests that fold (small ones by the lock, and large ones in ordinary segments) the clock
 * says whether one may hold a MiB more, or half as much more; half as much also after each look that
 * found something, where threads share. After policy.contended of them of which none had to wait for the lock, threads are
 * in each other's way no more (transfer.h). */
void thread_cache_pace(struct allocator *allocator);
void thread_cache_hold_less(struct allocator *allocator);
void thread_cache_note_most(struct allocator *allocator);

/* How much others may have counted alone while one thread passes a peak. */
void thread_cache_note_uncertainty(const struct allocator *allocator);

/* What the thread counted alone is added to the numbers, which are being changed. */
void thread_cache_fold(struct thread_cache *cache);

/* A large block was handed out, and the cache not folded: the peaks of all are that much nearer, or further away than it
 * knows. */
void thread_cache_note_passed(struct thread_cache *cache, uint64_t size, uint64_t requested);

#endif
