/* Blocks that others come to know: pinned, exported or lent to other processes, or asked about. */
#include "allocator/allocator.h"
#include "allocator/share.h"

#include <stddef.h>

#include "allocator/pool/arena_chunks.h"
#include "allocator/pool/segment_books.h"
#include "allocator/thread_cache/locked.h"
#include "allocator/pool/arena_blocks.h"
#include "allocator/reuse/lane.h"
#include "allocator/state/enter.h"

/* Returns the live block that holds `address`, or NULL. Mostly the block starts there. A segment
 * for small blocks has many, but the start of a block is never far. Other segments have few
 * blocks. */
static struct block *live_block_holding(struct domain *domain, struct segment *segment,
                                        uint64_t address)
{
    struct block *block = domain_block_at(domain, address);
    if (!block && segment->stat == SMALL_POOL) {
        uint64_t begin = segment->node.minor, at = address - (address - begin) % BLOCK_GRAIN;
        while (!(block = domain_block_at(domain, at)) && at > begin && address - at < CACHE_MOST)
            at -= BLOCK_GRAIN;
    } else if (!block) {
        for (block = segment->first; block && address >= block_address(block) + block_size(block);)
            block = block->next;
    }
    return block && block->state == BLOCK_ALLOCATED && !block_is_cached(block) &&
                   address - block_address(block) < block_size(block)
               ? block
               : NULL;
}

/* Fills *place. The block gets its outside name when it is first asked about. */
static void note_place(struct block *block, struct block_place *place)
{
    const struct segment *segment = block->segment;
    struct domain *domain = segment->allocator->domain;
    if (!block->name)
        block->name = ++domain->names ? domain->names : ++domain->names;
    *place = (struct block_place){.segment_address = segment->node.minor,
                                  .offset = block_address(block) - segment->node.minor,
                                  .size_bytes = block_size(block),
                                  .requested_bytes = block_requested(block),
                                  .site = site_place(block->site),
                                  .name = block->name,
                                  .context = segment->allocator->context,
                                  .device = segment->allocator->ordinal,
                                  .mapped = segment->arena != NULL,
                                  .sync_memops = block->sync_memops == 1};
}

int domain_find(struct domain *domain, uint64_t address, struct block_place *place)
{
    domain_lock(domain);
    struct segment *segment = segment_holding(domain, address);
    struct block *block = segment ? live_block_holding(domain, segment, address) : NULL;
    if (block)
        note_place(block, place);
    domain_unlock(domain);
    return block ? 0 : segment ? ALLOCATOR_INVALID : ALLOCATOR_UNKNOWN;
}

static void pin_segment(struct segment *segment, struct block *live)
{
    struct allocator *a = segment->allocator;
    if (segment->arena) {
        arena_pin(live);
        return;
    }
    for (struct block *block = segment->first; block; block = block->next)
        if (block->state == BLOCK_REUSABLE)
            bins_remove(&a->pool[segment->pool], &block->node);
    segment->pool = POOL_PINNED;
    for (struct block *block = segment->first; block; block = block->next)
        if (block->state == BLOCK_REUSABLE)
            bins_insert(&a->pool[POOL_PINNED], &block->node);
        else if (block_claimed(block) == CLAIM_EASY)
            block_claim(block, CLAIM_HELD);
}

/* Pins a live block, once: no block is taken from its segment afterwards. */
static void pin(struct segment *segment, struct block *block)
{
    if (segment->pool != POOL_PINNED && !block->sync_memops) {
        stats_count(segment->allocator->stats, COUNTER_num_pinned_blocks, 1);
        thread_caches_pool(segment->allocator);
        pin_segment(segment, block);
    }
    block->sync_memops = 1;
}

int domain_mark(struct domain *domain, uint64_t address, enum block_mark mark,
                struct block_place *place)
{
    lane_finish(domain);
    domain_lock(domain);
    thread_caches_stop(domain, NULL);
    struct segment *segment = segment_holding(domain, address);
    struct block *block = segment ? live_block_holding(domain, segment, address) : NULL;
    int condition = block ? 0 : segment ? ALLOCATOR_INVALID : ALLOCATOR_UNKNOWN;
    if (!condition) {
        struct device_stats *stats = segment->allocator->stats;
        for (struct allocator *a = domain->first; a; a = a->next)
            a->taken = NULL; /* requests may get other blocks from here on */
        note_place(block, place);
        stats_begin(stats);
        if (mark == BLOCK_PINNED) {
            pin(segment, block);
        } else if (mark == BLOCK_UNPINNED) {
            block->sync_memops = block->sync_memops ? 2 : 0;
        } else {
            stats_count(stats, COUNTER_num_exports, 1);
            stats_count(stats, COUNTER_num_offset_exports, place->offset && !place->mapped);
            domain->dedicated |= mark == BLOCK_EXPORTED;
            block->shared = 1;
            block_claim(block, CLAIM_HELD);
        }
        stats_end(stats);
    }
    thread_caches_go_on(domain, NULL);
    domain_unlock(domain);
    return condition;
}

/* Is the attribute set for another block of the same driver allocation? */
static int is_set_beside(const struct segment *segment, const struct block *block)
{
    const struct block *other = segment->arena ? NULL : segment->first;
    while (other && (other == block || other->state != BLOCK_ALLOCATED || other->sync_memops != 1))
        other = other->next;
    return other != NULL;
}

int domain_sync_memops(struct domain *domain, uint64_t address, int on,
                       int (*set)(void *device, uint64_t address, int mapped, int on))
{
    struct block_place place;
    int code = 0;
    domain_lock(domain);
    struct segment *segment = segment_holding(domain, address);
    struct block *block = segment ? live_block_holding(domain, segment, address) : NULL;
    if (block && (on || !is_set_beside(segment, block))) {
        struct allocator *a = segment->allocator;
        int mapped = segment->arena != NULL;
        stats_begin(a->stats);
        allocator_call(a);
        code = set(a->device, address, mapped, on);
        allocator_return(a);
        stats_end(a->stats);
    }
    domain_unlock(domain);
    return code ? code : domain_mark(domain, address, on ? BLOCK_PINNED : BLOCK_UNPINNED, &place);
}

static struct block *lent_block(const struct domain *domain, uint64_t address, uint64_t name)
{
    struct block *block = domain_block_at(domain, address);
    int lent = block && block->segment->arena && block->state == BLOCK_ALLOCATED && block->shared &&
               block->name == name;
    return lent ? block : NULL;
}

/* Calls `take` for the handle mapped from `slot` on, and adds its bytes to *done. Drops the lock
 * meanwhile. */
static int lend_handle(struct arena *arena, uint32_t slot, uint64_t *done,
                       int (*take)(void *context, uint64_t handle, uint64_t bytes), void *context)
{
    struct allocator *a = arena->allocator;
    struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
    uint64_t handle = chunk->handle, bytes = arena_handle_bytes(arena, arena->slot[slot].chunk);
    *done += bytes;
    chunk->lent++;
    stats_begin(a->stats);
    allocator_call(a);
    int code = take(context, handle, bytes);
    allocator_return(a);
    stats_end(a->stats);
    if (!a->life.forgotten) /* otherwise its tables may be gone */
        chunk->lent--;
    return code;
}

int domain_lend(struct domain *domain, uint64_t address, uint64_t name, struct block_loan *loan,
                int (*take)(void *context, uint64_t handle, uint64_t bytes), void *context)
{
    const struct block *block;
    int code = 0;
    uint64_t done = 0;
    *loan = (struct block_loan){.bytes = 1};
    domain_lock(domain);
    while (!code && done < loan->bytes) {
        if (!(block = lent_block(domain, address, name))) {
            code = ALLOCATOR_UNKNOWN;
            break;
        }
        struct arena *arena = block->segment->arena;
        uint64_t at = address - arena->base;
        uint32_t slot = (uint32_t)arena_slot_at(at);
        uint32_t last = (uint32_t)arena_slot_at(at + block_size(block) - 1);
        uint32_t first = arena_handle_at(arena, slot), end = arena_handle_end(arena, last);
        *loan = (struct block_loan){address - arena_address(arena, first),
                                    (uint64_t)(end - first) * CHUNK_BYTES};
        slot = (uint32_t)arena_slot_at(arena_address(arena, first) - arena->base + done);
        code = lend_handle(arena, slot, &done, take, context);
    }
    domain_unlock(domain);
    return code;
}
