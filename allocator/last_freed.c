/* When a freed block need not go through its pool.
 *
 * A request took block K from its pool: the front of a reusable block M, or all of M. If no pool
 * has changed since (`taken`), giving K back makes M again. The next request of as many bytes then
 * finds what the one before it found: K. So K is counted as reusable, but neither merged nor in the
 * pool (CLAIMED). That ends when K is taken again, or when any thread takes the lock for anything
 * else (domain_lock). Then K is put into its pool, as if it had been there from the start.
 *
 * Whatever changes which block a request would get clears `taken`: pool_put_in and pool_take_out.
 * So do the functions that change a block's pool or the rules: growth_by_driver, domain_mark,
 * packing_note.
 *
 * Between the free and the request, numbers change only by what threads count alone. So no peak is
 * passed when K is taken again, unless this thread has counted since. */
#include "allocator/allocator.h"
#include "allocator/last_freed.h"

#include <assert.h>
#include <stddef.h>

#include "allocator/pool/arena_blocks.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/pool.h"
#include "allocator/state/record.h"
#include "allocator/thread_cache/locked.h"
#include "allocator/reuse/lane.h"

/* Returns the rest of M, with which K will be merged. Before K nothing is reusable: M began with
 * K. */
static struct block *rest_of(const struct block *block)
{
    return pool_can_merge(block, block->next) ? block->next : NULL;
}

static inline int is_last(const struct block *block)
{
    const struct allocator *a = block->segment->allocator;
    return a->taken == block && !block->shared &&
           !(block_is_cacheable(block) && thread_cache_of(a->domain)) &&
           atomic_load_explicit(&a->slow, memory_order_relaxed) == SLOW_NOBODY;
}

static inline int keep(struct block *block)
{
    const struct segment *segment = block->segment;
    struct allocator *a = segment->allocator;
    struct device_stats *stats = a->stats;
    uint64_t size = block_size(block), requested = block_requested(block);
    const struct block *rest = rest_of(block);
    int split = block->previous || (rest ? rest : block)->next;
    stats_begin(stats);
    if (split && !segment->arena) /* otherwise no peak comes nearer */
        thread_cache_settle(a);
    a->frees++;
    stats_take_back(stats, block_stat(block), size, requested);
    stats_histogram(stats, requested, -1);
    stats_count(stats, COUNTER_num_lane_frees, 1);
    record_block(block, EVENT_free);
    block->state = BLOCK_CLAIMED;
    struct last_freed *kept = &a->domain->last_freed;
    kept->block = block;
    kept->more = rest ? block_size(rest) : 0;
    kept->split = split;
    kept->largest = stats_get(stats, COUNTER_largest_allocatable_bytes);
    if (rest)
        pool_count_out(segment, kept->more, 1);
    pool_count_in(segment, size + kept->more, kept->split);
    assert(a->domain->is_valid(a));
    stats_end(stats);
    return 1;
}

DIRECT int last_freed_keep(struct block *block)
{
    return is_last(block) && lane_free(block->segment->allocator) && keep(block);
}

int last_freed_keep_idle(struct block *block)
{
    return is_last(block) && keep(block);
}

/* May this request have the last freed block? A cache that served another allocator must be emptied
 * first. */
static int serves(const struct allocator *a, uint64_t bytes, const struct thread_cache *cache)
{
    const struct block *block = a->domain->last_freed.block;
    return block && block_requested(block) == bytes && block->segment->allocator == a &&
           !a->fences.pending && atomic_load_explicit(&a->slow, memory_order_relaxed) != SLOW_ALL &&
           (!cache || cache->allocator == a);
}

__attribute__((noinline)) static void
count_with_peaks(struct device_stats *stats, enum stat_pool pool, uint64_t size, uint64_t requested)
{
    stats_hand_out(stats, pool, size, requested);
    stats_note_peaks(stats);
}

DIRECT int last_freed_take(struct allocator *a, uint64_t bytes, uint64_t *address)
{
    struct last_freed *kept = &a->domain->last_freed;
    struct thread_cache *cache = thread_cache_of(a->domain);
    struct device_stats *stats = a->stats;
    if (!serves(a, bytes, cache))
        return 0;
    struct block *block = kept->block;
    const struct segment *segment = block->segment;
    uint64_t size = block_size(block);
    int counted = cache && cache->touched;
    stats_begin(stats);
    if (segment->arena && size > CACHE_MOST)
        counted = thread_cache_settle_large(a, size, bytes);
    else if (cache)
        thread_cache_settle_own(cache, a);
    kept->block = NULL;
    pool_count_out(segment, size + kept->more, kept->split);
    if (kept->more)
        pool_count_in(segment, kept->more, 1);
    stats_set(stats, COUNTER_largest_allocatable_bytes, kept->largest);
    a->mallocs++;
    stats_count(stats, COUNTER_num_hits, 1);
    if (counted)
        count_with_peaks(stats, block_stat(block), size, bytes);
    else
        stats_hand_out_again(stats, block_stat(block), size, bytes);
    stats_histogram(stats, bytes, 1);
    block->state = BLOCK_ALLOCATED;
    block->name = 0;
    record_block(block, EVENT_alloc);
    block_claim_for_program(block);
    *address = block_address(block);
    if (cache) { /* its free needs the lock */
        cache->last_freed = *address;
        cache->found = block;
    }
    assert(a->domain->is_valid(a));
    stats_end(stats);
    return 1;
}

void last_freed_put(struct domain *domain)
{
    struct block *block = domain->last_freed.block;
    struct allocator *a = block->segment->allocator;
    uint64_t begin = block_address(block), end = begin + block_size(block);
    domain->last_freed.block = NULL;
    packing_count(a, block_size(block), -1); /* not earlier: it may be taken again */
    stats_begin(a->stats);
    if (rest_of(block)) {
        pool_take_out(a, block->next);
        block_join(block, block->next);
    }
    pool_put_in(a, block);
    pool_note_in(block, begin, end);
    struct arena *arena = block->segment->arena;
    if (arena && arena_is_large(block_size(block)))
        arena_go_home(arena, begin, end);
    stats_end(a->stats);
}
