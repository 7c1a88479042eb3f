/* A freed block leaves use and becomes reusable. */
#include "allocator/pool/reusable.h"

#include <assert.h>

#include "allocator/pool/arena_blocks.h"
#include "allocator/pool/pool.h"

void block_leaves_use(struct block *block)
{
    struct device_stats *stats = block->segment->allocator->stats;
    enum stat_pool stat = block_stat(block);
    assert(block->state == BLOCK_PENDING);
    stats_subtract(stats, STAT_requested_bytes, stat, block_requested(block));
    stats_subtract(stats, STAT_active, stat, 1);
    stats_subtract(stats, STAT_active_bytes, stat, block_size(block));
}

void block_becomes_reusable(struct block *block)
{
    struct arena *arena = block->segment->arena;
    uint64_t begin = block_address(block), end = begin + block_size(block);
    block_leaves_use(block);
    block = pool_merge(block->segment->allocator, block);
    if (block->pinned && arena)
        arena_retire(block);
    else if (arena && arena_is_large(block_size(block)))
        arena_go_home(arena, begin, end);
}
