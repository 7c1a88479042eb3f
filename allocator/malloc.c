/* Allocating: the order in which memory is looked for, and the books. */
#include "allocator/allocator.h"

#include <assert.h>
#include <stddef.h>

#include "allocator/pool/arena_blocks.h"
#include "allocator/reuse/fence.h"
#include "allocator/growth.h"
#include "allocator/last_freed.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/pool.h"
#include "allocator/state/record.h"
#include "allocator/thread_cache/locked.h"
#include "allocator/state/enter.h"

/* Looks for a block that is reusable, or has become so meanwhile. */
static struct block *look(struct allocator *a, uint64_t size)
{
    a->mallocs++;
    if (a->fences.pending)
        fence_note_turn(a, a->ops->thread_id());
    fence_poll(a, 0);
    struct block *block = size <= CACHE_MOST ? thread_cache_find(a, size) : NULL;
    if (block)
        return block;
    block = growth_take(a, size);
    if (!block && a->fences.pending) {
        fence_poll(a, 1);
        block = growth_take(a, size);
    }
    if (block && size <= CACHE_MOST)
        thread_cache_stock(a, size);
    return block;
}

static int hand_out(struct allocator *a, struct block *block, uint64_t bytes, uint64_t *address)
{
    enum stat_pool stat = block_stat(block);
    uint64_t size = block_size(block);
    if (block_list(block)) {
        pool_merge(a, block);
        return ALLOCATOR_PASS;
    }
    if (block->segment->arena)
        arena_note_idle(block->segment->arena);
    if (block->segment->arena && size > CACHE_MOST)
        thread_cache_settle_large(a, size, bytes);
    block->state = BLOCK_ALLOCATED;
    block->noted_by = block->shared = block->sync_memops = 0;
    block->noted = thread_cache_nowhere;
    block->name = 0;
    block_request(block, bytes);
    packing_count(a, size, 1);
    stats_hand_out(a->stats, stat, size, bytes);
    stats_histogram(a->stats, bytes, 1);
    record_block(block, EVENT_alloc);
    block_claim_for_program(block);
    *address = block_address(block);
    return 0;
}

/* Finds a block of `size` bytes. If there is none, grows by one, or (`further` is 0) returns
 * ALLOCATOR_MISS. */
static int find(struct allocator *a, uint64_t bytes, uint64_t size, int further,
                struct block **block)
{
    uint64_t segments = stats_get(a->stats, COUNTER_num_device_alloc);
    if (a->life.error || a->life.forgotten)
        return ALLOCATOR_PASS;
    if (!a->domain->options.cache)
        return further ? growth_by_driver(a, bytes, GROW_NATIVE, block) : ALLOCATOR_MISS;
    int code = 0;
    size = pool_round(a, size);
    if (further && size > MIB)
        packing_note(a, size);
    if (!(*block = look(a, size))) {
        if (!further)
            return ALLOCATOR_MISS;
        code = a->life.forgotten ? ALLOCATOR_PASS : growth_find(a, size, block);
        if (code == 0)
            pool_split(a, *block, size);
    } else if (!further && size > MIB) {
        packing_note(a, size);
    }
    if (code == 0 && stats_get(a->stats, COUNTER_num_device_alloc) == segments)
        stats_count(a->stats, COUNTER_num_hits, 1);
    return code;
}

/* Serves a request that the last freed block does not serve. The lock is held. */
static int allocate(struct allocator *a, uint64_t bytes, uint64_t *address, int further)
{
    uint64_t size = options_round(&a->domain->options, bytes);
    struct block *block = NULL;
    if (size > UINT64_MAX / 2)
        return ALLOCATOR_PASS;
    if (a->domain->last_freed.block)
        last_freed_put(a->domain);
    stats_begin(a->stats);
    /* Otherwise hand_out settles. pool_for reads the arena, and that of a forgotten allocator is
     * buried without the lock. */
    if (a->life.forgotten || a->fences.pending || size <= CACHE_MOST ||
        pool_for(a, size) != POOL_MAPPED)
        thread_cache_settle(a);
    int code = find(a, bytes, size, further, &block);
    if (code == 0)
        code = hand_out(a, block, bytes, address);
    if (code == a->ops->out_of_memory) {
        stats_count(a->stats, COUNTER_num_ooms, 1);
        record_oom(a, bytes);
    }
    allocator_before_leaving(a);
    return code;
}

int allocator_malloc(struct allocator *a, uint64_t bytes, uint64_t *address)
{
    lock_take(&a->domain->lock);
    int code = last_freed_take(a, bytes, address) ? 0 : allocate(a, bytes, address, 1);
    domain_unlock(a->domain);
    return code;
}

void allocator_refused(struct allocator *a, uint64_t bytes)
{
    domain_lock(a->domain);
    stats_begin(a->stats);
    stats_count(a->stats, COUNTER_num_ooms, 1);
    record_oom(a, bytes);
    stats_end(a->stats);
    domain_unlock(a->domain);
}

DIRECT int allocator_hit(struct allocator *a, uint64_t bytes, uint64_t *address)
{
    lock_take(&a->domain->lock);
    int code = last_freed_take(a, bytes, address) ? 0 : allocate(a, bytes, address, 0);
    domain_unlock(a->domain);
    return code;
}
