/* Thread caches: what a thread may count alone, and how much a cache may hold. */
#include "allocator/thread_cache/limits.h"

#include "allocator/base/policy.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The counts lie in the page, and whoever falsifies them there may choose any numbers: their sums
 * wrap around. */
static int64_t sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t difference(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* Bounds a number of the page, so that counting from it on overflows nothing. */
static int64_t bounded(int64_t n)
{
    return most(least(n, INT64_MAX / 4), INT64_MIN / 4);
}

/* How far a statistic is below its peak: of small blocks, of all blocks, of both. */
static int64_t below_own(const struct device_stats *stats, enum stat_kind kind)
{
    return (int64_t)(stat_get(&stats->stat[kind].peak[SMALL_POOL]) -
                     stats_current(stats, kind, SMALL_POOL));
}

static int64_t below_all(const struct device_stats *stats, enum stat_kind kind)
{
    return (int64_t)(stat_get(&stats->stat[kind].peak[STAT_POOLS]) -
                     stats_current_all(stats, kind));
}

static int64_t below_both(const struct device_stats *stats, enum stat_kind kind)
{
    return least(below_own(stats, kind), below_all(stats, kind));
}

/* Sets the limits. Within them no peak is passed, and the cache is not too full. However much goes
 * through a cache, its thread counts at most alone_limit alone: the peaks of others are right
 * within that. */
static void clamp(struct thread_cache *cache)
{
    int64_t bytes = cache_bytes(cache), count = cache_count(cache);
    int64_t requested = cache_requested(cache);
    cache->least_bytes = bounded(most(most(cache->own_bytes, cache->all_bytes),
                                      difference(cache->folded_bytes, alone_limit(cache))));
    cache->least_count = bounded(most(most(cache->own_count, cache->all_count),
                                      difference(cache->folded_count, policy.cache_blocks)));
    cache->least_requested = bounded(most(cache->own_requested, cache->all_requested));
    cache->take_bytes = bytes - cache->least_bytes;
    cache->take_count = count - cache->least_count;
    cache->take_requested = requested - cache->least_requested;
    cache->give_bytes = bounded(least(cache_limit(cache), cache->peak_bytes)) - bytes;
    cache->give_count = bounded(least(policy.cache_blocks, cache->peak_count)) - count;
}

int cache_takes_back(struct thread_cache *cache, uint64_t size, uint64_t requested, unsigned steps)
{
    cache->take_bytes += (int64_t)size;
    cache->take_count += steps > 1;
    cache->take_requested += steps > 2 ? (int64_t)requested : 0;
    return 0;
}

int cache_gives_back(struct thread_cache *cache, uint64_t size, unsigned steps)
{
    cache->give_bytes += (int64_t)size;
    cache->give_count += steps > 1;
    return 0;
}

/* Active bytes may be nearer to their peak than allocated bytes. */
void thread_cache_set_limits(struct thread_cache *cache)
{
    const struct device_stats *stats = cache->allocator->stats;
    int64_t bytes = cache->folded_bytes, count = cache->folded_count;
    cache->own_bytes = difference(
        bytes, least(below_own(stats, STAT_allocated_bytes), below_own(stats, STAT_active_bytes)));
    cache->all_bytes = difference(
        bytes, least(below_all(stats, STAT_allocated_bytes), below_all(stats, STAT_active_bytes)));
    cache->own_count =
        difference(count, least(below_own(stats, STAT_allocation), below_own(stats, STAT_active)));
    cache->all_count =
        difference(count, least(below_all(stats, STAT_allocation), below_all(stats, STAT_active)));
    cache->own_requested =
        difference(cache->folded_requested, below_own(stats, STAT_requested_bytes));
    cache->all_requested =
        difference(cache->folded_requested, below_all(stats, STAT_requested_bytes));
    cache->peak_bytes =
        sum(bytes, least(alone_limit(cache), below_both(stats, STAT_inactive_split_bytes)));
    cache->peak_count =
        sum(count, least(policy.cache_blocks, below_both(stats, STAT_inactive_split)));
    clamp(cache);
}

void thread_cache_moved(struct thread_cache *cache, uint64_t size, int64_t blocks)
{
    int64_t bytes = (int64_t)size * blocks;
    cache->take_bytes = sum(cache->take_bytes, bytes);
    cache->take_count = sum(cache->take_count, blocks);
    cache->folded_bytes += bytes;
    cache->folded_count += blocks;
    cache->own_bytes = sum(cache->own_bytes, bytes);
    cache->own_count = sum(cache->own_count, blocks);
    cache->all_bytes = sum(cache->all_bytes, bytes);
    cache->all_count = sum(cache->all_count, blocks);
    cache->peak_bytes = sum(cache->peak_bytes, bytes);
    cache->peak_count = sum(cache->peak_count, blocks);
    clamp(cache);
}

static void change(_Atomic int64_t *number, int64_t to)
{
    if (atomic_load_explicit(number, memory_order_relaxed) != to)
        atomic_store_explicit(number, to, memory_order_relaxed);
}

void thread_cache_note_uncertainty(const struct allocator *a)
{
    uint64_t threads = 0, bytes = 0;
    for (const struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
        if (cache->allocator && cache->allocator->stats == a->stats) {
            threads++;
            bytes += (uint64_t)alone_limit(cache);
        }
    if (threads > 1)
        stat_raise_to(&a->stats->counter[COUNTER_peak_uncertainty_bytes], bytes);
}

/* Never lowers the limit: a thread may have counted as much already. */
static void note_alone(struct allocator *a, uint64_t held)
{
    uint64_t part = caches_are_contended(a) ? held / policy.alone_part / MIB * MIB : 0;
    int64_t most = part < policy.alone_least  ? (int64_t)policy.alone_least
                   : part > policy.alone_most ? (int64_t)policy.alone_most
                                              : (int64_t)part;
    if (most <= atomic_load_explicit(&a->shared.alone_most, memory_order_relaxed))
        return;
    atomic_store_explicit(&a->shared.alone_most, most, memory_order_relaxed);
    thread_cache_note_uncertainty(a);
}

/* Notes how much caches and the transfer cache may hold, and what each thread may count alone. In
 * whole MiB: so it seldom changes for threads that read it without the lock. */
void thread_cache_note_most(struct allocator *a)
{
    const struct pool_stat *held_by_program = &a->stats->stat[STAT_allocated_bytes];
    uint64_t held = stat_get(&held_by_program->peak[SMALL_POOL]);
    uint64_t part = held / policy.cache_part + a->caches.more;
    uint64_t most = part < policy.cache_least  ? policy.cache_least
                    : part > policy.cache_most ? policy.cache_most
                                               : part / MIB * MIB;
    change(&a->shared.cache_most, (int64_t)most);
    change(&a->shared.transfer_most,
           (int64_t)(most * a->caches.sharers * policy.transfer_tenths / 10));
    note_alone(a, held);
}

void thread_cache_hold_less(struct allocator *a)
{
    a->caches.more = a->caches.more / MIB / 2 * MIB;
    thread_cache_note_most(a);
}

void thread_cache_pace(struct allocator *a)
{
    uint64_t now = a->ops->now_ns(), took = now - a->caches.settled_since;
    if (allocator_is_alone(a)) /* no clock decides what its cache holds, so what is reserved */
        took = 0;
    a->caches.settled_since = now;
    a->caches.settled = a->caches.looks = 0;
    uint64_t brisk = caches_are_contended(a) ? policy.pace_fast_ns : policy.pace_brisk_ns;
    uint64_t held = stat_get(&a->stats->stat[STAT_allocated_bytes].peak[STAT_POOLS]);
    uint64_t part = held / policy.pace_part / (a->caches.sharers ? a->caches.sharers : 1);
    uint64_t most = took < policy.pace_fast_ns || part > policy.cache_most ? policy.cache_most
                                                                           : part / MIB * MIB;
    if (took < brisk)
        a->caches.more = a->caches.more < most ? a->caches.more + MIB : most;
    if (took > policy.pace_slow * brisk)
        thread_cache_hold_less(a);
    else
        thread_cache_note_most(a);
}

void thread_cache_fold(struct thread_cache *cache)
{
    if (cache->touched)
        stats_fold(cache->allocator->stats, cache->row, cache->touched);
    cache->touched = 0;
    cache->folded_bytes = cache_bytes(cache);
    cache->folded_count = cache_count(cache);
    cache->folded_requested = cache_requested(cache);
    thread_cache_note_most(cache->allocator);
    thread_cache_forget_limits(cache);
}

void thread_cache_note_passed(struct thread_cache *cache, uint64_t size, uint64_t requested)
{
    if (!thread_cache_knows_limits(cache))
        return;
    cache->all_bytes += (int64_t)size;
    cache->all_count++;
    cache->all_requested += (int64_t)requested;
    clamp(cache);
}
