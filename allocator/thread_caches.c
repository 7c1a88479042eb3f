/* Thread caches: what is done under the lock. The rules are at the head of thread_cache.c. */
#include <sched.h>
#include <stddef.h>

#include "allocator/pool.h"
#include "allocator/thread_cache.h"

#define SPARE_BLOCKS 16 /* of an allocator; what is more is pooled */
#define REFILL_BLOCKS 16
#define REFILL_BYTES (256 * 1024)

static unsigned step_of(uint64_t size)
{
    return (unsigned)(size / BLOCK_GRAIN - 1);
}

static void fold(struct thread_cache *cache)
{
    if (cache->touched)
        stats_fold(cache->allocator->stats, cache->row, cache->touched);
    cache->touched = 0;
    thread_cache_forget_limits(cache);
}

/* A cached block is no longer reusable, for the books. */
static void book_out(struct allocator *a, uint64_t size)
{
    uint64_t reusable = stats_get(a->stats, COUNTER_reusable_bytes);
    stats_set(a->stats, COUNTER_reusable_bytes, reusable - size);
    stats_subtract(a->stats, STAT_inactive_split, SMALL_POOL, 1);
    stats_subtract(a->stats, STAT_inactive_split_bytes, SMALL_POOL, size);
}

/* A cached block becomes the pool's. */
static void pool_back(struct block *block)
{
    struct allocator *a = block->segment->allocator;
    book_out(a, block_size(block));
    block_claim(block, CLAIM_NOBODY);
    block->state = BLOCK_PENDING;
    pool_merge(a, block);
}

/* `left`: bytes that are in there. */
static uint64_t pool_all(struct block **first, uint64_t left)
{
    uint64_t bytes = left;
    for (unsigned step = 0; left; step++)
        for (struct block *block; (block = first[step]);) {
            first[step] = block->link;
            left -= block_size(block);
            pool_back(block);
        }
    return bytes;
}

/* What the cache counted and holds goes to its allocator, whose numbers are being changed. */
static uint64_t empty(struct thread_cache *cache)
{
    fold(cache);
    uint64_t bytes = pool_all(cache->first, (uint64_t)cache->bytes);
    cache->count = cache->bytes = 0;
    return bytes;
}

/* Leaves the allocator that it served. `begun`: whose numbers are being changed already. */
static void unbind(struct thread_cache *cache, const struct device_stats *begun)
{
    struct allocator *a = cache->allocator;
    if (!a)
        return;
    if (a->stats != begun)
        stats_begin(a->stats);
    empty(cache);
    if (a->stats != begun)
        stats_end(a->stats);
    cache->allocator = NULL;
    stat_set(&cache->row->device, 0);
}

static int serves(const struct thread_cache *cache, const struct device_stats *stats)
{
    return cache->allocator && (!stats || cache->allocator->stats == stats);
}

/* While one thread passes a peak, others may have counted as much as their caches hold. */
static void note_uncertainty(struct allocator *a)
{
    uint64_t caches = 0;
    for (const struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
        caches += (uint64_t)serves(cache, a->stats);
    if (caches > 1)
        stat_raise_to(&a->stats->counter[COUNTER_peak_uncertainty_bytes], caches * CACHE_LIMIT);
}

void thread_cache_settle_with(struct thread_cache *cache, struct allocator *a)
{
    if (cache->allocator == a) {
        fold(cache);
        return;
    }
    unbind(cache, a->stats);
    if (a->forgotten)
        return;
    cache->allocator = a;
    stat_set(&cache->row->device, a->ordinal + 1);
    note_uncertainty(a);
    thread_cache_forget_limits(cache);
}

/* Some spare blocks of this size for a cache that has none. */
static void refill(struct thread_cache *cache, struct allocator *a, uint64_t size)
{
    struct block **spare = &a->spare_blocks[step_of(size)], **first = &cache->first[step_of(size)];
    for (uint64_t i = 0; i < REFILL_BLOCKS && i * size < REFILL_BYTES && *spare &&
                         cache->bytes + (int64_t)size <= (int64_t)CACHE_LIMIT;
         i++) {
        struct block *block = *spare;
        *spare = block->link;
        block->link = *first;
        *first = block;
        a->spare_bytes -= size;
        a->spare_count--;
        cache->bytes += (int64_t)size;
        cache->count++;
    }
}

struct block *thread_cache_find(struct allocator *a, uint64_t size)
{
    struct thread_cache *cache = thread_cache_of(a->domain);
    if (!cache && !a->spare_bytes)
        return NULL;
    if (cache && cache->allocator != a)
        cache = NULL;
    if (cache && !cache->first[step_of(size)])
        refill(cache, a, size);
    struct block **first = cache ? cache->first : a->spare_blocks, *block = first[step_of(size)];
    if (!block)
        return NULL;
    first[step_of(size)] = block->link;
    if (cache) {
        cache->bytes -= (int64_t)size;
        cache->count--;
    } else {
        a->spare_bytes -= size;
        a->spare_count--;
    }
    book_out(a, size);
    return block;
}

/* All of a full cache becomes spare. */
static void spill(struct thread_cache *cache)
{
    struct allocator *a = cache->allocator;
    for (unsigned step = 0; cache->count; step++)
        for (struct block *block; (block = cache->first[step]); cache->count--) {
            cache->first[step] = block->link;
            if (a->spare_count >= SPARE_BLOCKS) {
                pool_back(block);
                continue;
            }
            block->link = a->spare_blocks[step];
            a->spare_blocks[step] = block;
            a->spare_bytes += block_size(block);
            a->spare_count++;
        }
    cache->bytes = 0;
}

int thread_cache_keep(struct block *block)
{
    struct allocator *a = block->segment->allocator;
    struct thread_cache *cache = thread_cache_of(a->domain);
    uint64_t size = block_size(block);
    if (!cache || cache->allocator != a || block->segment->pool != POOL_SMALL)
        return 0;
    if (cache->bytes + (int64_t)size > (int64_t)CACHE_LIMIT || cache->count >= CACHE_BLOCKS)
        spill(cache);
    block_leaves_use(block);
    block->state = BLOCK_ALLOCATED;
    block_claim(block, CLAIM_CACHED);
    block->link = cache->first[step_of(size)];
    cache->first[step_of(size)] = block;
    cache->bytes += (int64_t)size;
    cache->count++;
    stats_add(a->stats, STAT_inactive_split, SMALL_POOL, 1);
    stats_add(a->stats, STAT_inactive_split_bytes, SMALL_POOL, size);
    stats_set(a->stats, COUNTER_reusable_bytes, stats_get(a->stats, COUNTER_reusable_bytes) + size);
    return 1;
}

int thread_caches_serve(const struct domain *domain, const struct device_stats *stats)
{
    for (const struct thread_cache *cache = domain->caches; cache; cache = cache->next)
        if (serves(cache, stats))
            return 1;
    return 0;
}

void thread_caches_stop(struct domain *domain, const struct device_stats *stats)
{
    int others = 0;
    for (struct thread_cache *cache = domain->caches; cache; cache = cache->next)
        if (serves(cache, stats) && cache != thread_cache_own) {
            atomic_store_explicit(&cache->wanted, 1, memory_order_relaxed);
            others = 1;
        }
    if (!others)
        return;
    domain->lane.ops->barrier();
    for (struct thread_cache *cache = domain->caches; cache; cache = cache->next)
        if (atomic_load_explicit(&cache->wanted, memory_order_relaxed))
            while (atomic_load_explicit(&cache->row->sequence, memory_order_acquire) % 2)
                sched_yield();
}

void thread_caches_go_on(struct domain *domain, const struct device_stats *stats)
{
    for (struct thread_cache *cache = domain->caches; cache; cache = cache->next)
        if (serves(cache, stats))
            atomic_store_explicit(&cache->wanted, 0, memory_order_release);
}

uint64_t thread_caches_pool(struct allocator *a)
{
    uint64_t bytes = 0;
    for (struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
        if (serves(cache, a->stats))
            bytes += empty(cache);
    for (struct allocator *other = a->domain->first; other; other = other->next)
        if (other->stats == a->stats) {
            bytes += pool_all(other->spare_blocks, other->spare_bytes);
            other->spare_bytes = other->spare_count = 0;
        }
    return bytes;
}

uint64_t thread_caches_empty(struct allocator *a)
{
    thread_caches_stop(a->domain, a->stats);
    uint64_t bytes = thread_caches_pool(a);
    thread_caches_go_on(a->domain, a->stats);
    return bytes;
}

void thread_caches_leave(struct allocator *a)
{
    for (struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
        if (cache->allocator == a) {
            unbind(cache, a->stats);
            atomic_store_explicit(&cache->wanted, 0, memory_order_release);
        }
}

int domain_thread_begins(struct domain *domain, struct cache_row *row)
{
    const struct lane_ops *ops = domain->lane.ops;
    if (!domain->options.thread_cache || !domain->options.cache || !ops || ops->barrier())
        return -1;
    domain_lock(domain);
    struct thread_cache *cache = slab_take(&domain->cache_slab);
    if (cache) {
        cache->domain = domain;
        cache->row = row;
        thread_cache_forget_limits(cache);
        cache->next = domain->caches;
        if (cache->next)
            cache->next->previous = cache;
        domain->caches = cache;
    }
    domain_unlock(domain);
    thread_cache_own = cache;
    return cache ? 0 : -1;
}

void domain_thread_ends(struct domain *domain)
{
    struct thread_cache *cache = thread_cache_of(domain);
    if (!cache)
        return;
    domain_lock(domain);
    thread_cache_own = NULL;
    unbind(cache, NULL);
    *(cache->previous ? &cache->previous->next : &domain->caches) = cache->next;
    if (cache->next)
        cache->next->previous = cache->previous;
    slab_give(&domain->cache_slab, cache);
    domain_unlock(domain);
}
