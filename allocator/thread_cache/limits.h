/* Thread caches: how far a thread may count alone without passing a peak, and when its counts are
 * folded into the numbers. Also how much a cache may hold.
 *
 * The cache's own thread calls the functions on a cache, inside it or under the domain's lock. The
 * functions on an allocator need the lock. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_LIMITS_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_LIMITS_H

#include "allocator/thread_cache/thread_cache.h"

/* Voids the limits: nothing may be taken or given until they are looked up again. */
static inline void thread_cache_forget_limits(struct thread_cache *cache)
{
    cache->least_bytes = cache->own_bytes = INT64_MAX / 2; /* stays so when it moves a little */
    cache->peak_bytes = INT64_MIN / 2;
    cache->most_bytes = -1;
}

static inline int thread_cache_knows_limits(const struct thread_cache *cache)
{
    return cache->most_bytes >= 0;
}

/* Looks up the limits as they are now. They leave out what other threads count alone. */
void thread_cache_set_limits(struct thread_cache *cache);

/* Moves the known limits along with blocks that came in or went out (negative) uncounted. */
void thread_cache_moved(struct thread_cache *cache, uint64_t size, int64_t blocks);

static inline int64_t cache_limit(const struct thread_cache *cache)
{
    return atomic_load_explicit(&cache->allocator->shared.cache_most, memory_order_relaxed);
}

static inline int64_t alone_limit(const struct thread_cache *cache)
{
    return atomic_load_explicit(&cache->allocator->shared.alone_most, memory_order_relaxed);
}

/* How much a cache may hold. Cached blocks are missing where they could be split or merged, so more
 * memory is reserved, or looked for (thread_caches_assemble). That pays only where caches miss all
 * the time. So the time that `policy.pace` requests took decides whether the limit grows by 1 MiB
 * or its growth so far is halved. Counted are small requests that take the lock, and large ones in
 * ordinary segments. Where threads share, a look that found something halves the growth, too.
 *
 * After `policy.contended` such requests, none of which waited for the lock, threads do not contend
 * any longer (transfer.h).
 *
 * thread_cache_pace looks at the clock, thread_cache_hold_less halves, and thread_cache_note_most
 * publishes the bounds. */
void thread_cache_pace(struct allocator *allocator);
void thread_cache_hold_less(struct allocator *allocator);
void thread_cache_note_most(struct allocator *allocator);

/* Notes how much other threads may have counted alone while one thread passes a peak. */
void thread_cache_note_uncertainty(const struct allocator *allocator);

/* Adds what the thread counted alone to the numbers. Needs the lock, after stats_begin. */
void thread_cache_fold(struct thread_cache *cache);

/* Takes note that a large block was handed out without a fold. The peaks of all blocks are that
 * much nearer, or further away than the cache knows. */
void thread_cache_note_passed(struct thread_cache *cache, uint64_t size, uint64_t requested);

#endif
