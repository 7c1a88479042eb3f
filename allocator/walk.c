/* Listing all blocks, and checking that everything an allocator believes is true. */
#include <stddef.h>

#include "allocator/domain.h"
#include "allocator/thread_cache.h"

static const uint8_t shown_as[] = {
    [BLOCK_ALLOCATED] = SNAPSHOT_ALLOCATED,
    [BLOCK_PENDING] = SNAPSHOT_PENDING,
    [BLOCK_REUSABLE] = SNAPSHOT_REUSABLE,
};

static void show(const struct block *block, void (*take)(void *, const struct snapshot_block *),
                 void *context)
{
    const struct segment *segment = block->segment;
    enum block_state state = block_is_cached(block) ? BLOCK_REUSABLE : block->state;
    const struct snapshot_block row = {
        .address = block_address(block),
        .size_bytes = block_size(block),
        .requested_bytes = state == BLOCK_REUSABLE ? 0 : block->requested,
        .segment_address = segment->node.minor,
        .segment_bytes = segment->size,
        .device = segment->allocator->ordinal,
        .state = shown_as[state],
        .pool = (uint8_t)segment->stat,
        .site = block->state == BLOCK_REUSABLE ? 0 : block->site,
    };
    take(context, &row);
}

void domain_walk(struct domain *domain,
                 void (*take)(void *context, const struct snapshot_block *block), void *context)
{
    pthread_mutex_lock(&domain->lock);
    thread_caches_stop(domain, NULL);
    for (struct tree_node *node = tree_at_least(&domain->segments, 0, 0); node;
         node = tree_at_least(&domain->segments, 0, node->minor + 1))
        for (struct block *block = ((struct segment *)node)->first; block; block = block->next)
            show(block, take, context);
    thread_caches_go_on(domain, NULL);
    pthread_mutex_unlock(&domain->lock);
}

int block_is_valid(const struct block *block)
{
    const struct block *next = block->next;
    if (!block_size(block) || (block->previous && block->previous->next != block))
        return 0;
    if (!next)
        return block_address(block) + block_size(block) ==
               block->segment->node.minor + block->segment->size;
    return next->previous == block &&
           block_address(next) == block_address(block) + block_size(block) &&
           next->segment == block->segment &&
           !(block->state == BLOCK_REUSABLE && next->state == BLOCK_REUSABLE);
}

struct sums {
    uint64_t allocated, active, requested, reserved, reusable, inactive_split;
    int cached; /* thread caches change what others count */
};

static int add_segment(const struct segment *segment, struct sums *sums)
{
    const struct domain *domain = segment->allocator->domain;
    if (!segment->first || segment->first->previous ||
        block_address(segment->first) != segment->node.minor)
        return 0;
    if (segment->idle != (!segment->first->next && segment->first->state == BLOCK_REUSABLE))
        return 0;
    sums->reserved += segment->size;
    for (const struct block *block = segment->first; block; block = block->next) {
        int listed = map_find(&domain->listed, block_address(block)) == &block->listed;
        int held = block->state == BLOCK_ALLOCATED;
        if (!block_is_valid(block) || listed != (atomic_load(&block->claim) != 0) ||
            held != (block_claimed(block) != CLAIM_NOBODY))
            return 0;
        if (block->state == BLOCK_REUSABLE) {
            const struct tree *pool = &segment->allocator->pool[segment->pool];
            if (tree_at_least(pool, block->node.major, block->node.minor) != &block->node)
                return 0;
            sums->reusable += block_size(block);
            sums->inactive_split += segment->idle ? 0 : block_size(block);
            continue;
        }
        if (block_is_cached(block)) {
            sums->reusable += block_size(block);
            sums->inactive_split += block_size(block);
            continue;
        }
        sums->active += block_size(block);
        sums->requested += sums->cached ? 0 : block->requested;
        sums->allocated += held ? block_size(block) : 0;
    }
    return 1;
}

/* Sum of rows equals each counter, over all allocators that share this device's row. */
int allocator_is_valid(const struct allocator *a)
{
    struct sums sums = {.cached = thread_caches_serve(a->domain, a->stats)};
    for (const struct allocator *other = a->domain->first; other; other = other->next)
        if (other->stats == a->stats)
            for (const struct segment *segment = other->segments; segment; segment = segment->next)
                if (!add_segment(segment, &sums))
                    return 0;
    if (sums.cached)
        return 1;
    return sums.allocated == stats_current_all(a->stats, STAT_allocated_bytes) &&
           sums.active == stats_current_all(a->stats, STAT_active_bytes) &&
           sums.requested == stats_current_all(a->stats, STAT_requested_bytes) &&
           sums.reserved == stats_current_all(a->stats, STAT_reserved_bytes) &&
           sums.inactive_split == stats_current_all(a->stats, STAT_inactive_split_bytes) &&
           sums.reusable == stats_get(a->stats, COUNTER_reusable_bytes) &&
           sums.requested <= sums.active;
}
