/* Thread caches: how far a thread may count alone without passing a peak, and when its counts are
 * folded into the numbers. Also how much a cache may hold.
 *
 * The cache's own thread calls the functions on a cache, inside it or under the domain's lock. The
 * functions on an allocator need the lock. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_LIMITS_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_LIMITS_H

#include "allocator/thread_cache/thread_cache.h"

/* What the thread freed less what it allocated since its cache was empty: what the cache holds,
 * but for `requested`. */
static inline int64_t cache_bytes(const struct thread_cache *cache)
{
    return cache->least_bytes + cache->take_bytes;
}

static inline int64_t cache_count(const struct thread_cache *cache)
{
    return cache->least_count + cache->take_count;
}

static inline int64_t cache_requested(const struct thread_cache *cache)
{
    return cache->least_requested + cache->take_requested;
}

/* Undo the first steps of cache_takes and cache_gives. Return 0. */
__attribute__((cold)) int cache_takes_back(struct thread_cache *cache, uint64_t size,
                                           uint64_t requested, unsigned steps);
__attribute__((cold)) int cache_gives_back(struct thread_cache *cache, uint64_t size,
                                           unsigned steps);

/* Takes or gives a block, if the limits allow it. Returns 0 if not. Each step is one instruction
 * that writes, which the processor's flags end. */
static inline __attribute__((always_inline)) int cache_takes(struct thread_cache *cache,
                                                             uint64_t size, uint64_t requested)
{
    if ((cache->take_bytes -= (int64_t)size) < 0)
        return cache_takes_back(cache, size, requested, 1);
    if (--cache->take_count < 0)
        return cache_takes_back(cache, size, requested, 2);
    if ((cache->take_requested -= (int64_t)requested) < 0)
        return cache_takes_back(cache, size, requested, 3);
    cache->give_bytes += (int64_t)size;
    cache->give_count++;
    return 1;
}

static inline __attribute__((always_inline)) int cache_gives(struct thread_cache *cache,
                                                             uint64_t size, uint64_t requested)
{
    if ((cache->give_bytes -= (int64_t)size) < 0)
        return cache_gives_back(cache, size, 1);
    if (--cache->give_count < 0)
        return cache_gives_back(cache, size, 2);
    cache->take_bytes += (int64_t)size;
    cache->take_count++;
    cache->take_requested += (int64_t)requested;
    return 1;
}

/* Voids the limits: nothing may be taken or given until they are looked up again. */
static inline void thread_cache_forget_limits(struct thread_cache *cache)
{
    int64_t bytes = cache_bytes(cache);
    cache->least_bytes = cache->own_bytes = INT64_MAX / 2; /* stays so when it moves a little */
    cache->take_bytes = bytes - cache->least_bytes;
    cache->peak_bytes = INT64_MIN / 2;
    cache->give_bytes = -1 - bytes;
}

static inline int thread_cache_knows_limits(const struct thread_cache *cache)
{
    return cache_bytes(cache) + cache->give_bytes >= 0;
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
