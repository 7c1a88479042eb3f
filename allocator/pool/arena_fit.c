/* First fit by address. Each slot knows the largest hole that begins in it, and a tree of maxima
 * finds the first slot whose hole is large enough. While much is lost between blocks, the best of
 * policy.fit_slots slots from there on serves, if it leaves little over. */
#include "allocator/pool/arena_fit.h"

#include <stddef.h>

#include "allocator/base/policy.h"
#include "allocator/pool/arena_chunks.h"
#include "allocator/pool/arena_holes.h"

/* Sizes from 2 TiB on count as equal: a hole has memory below all of it, and no device has so
 * much. */
static uint32_t grains_of(uint64_t size)
{
    uint64_t grains = size / BLOCK_GRAIN;
    return grains < UINT32_MAX ? (uint32_t)grains : UINT32_MAX;
}

static uint32_t slot_of(const struct block *block)
{
    const struct arena *arena = block->segment->arena;
    return (uint32_t)arena_slot_at(block_address(block) - arena->base);
}

static void set(struct arena *arena, uint32_t slot, struct block *block)
{
    arena->slot[slot].largest = block;
    max_tree_set(&arena->fit, slot, block ? grains_of(block_size(block)) : 0);
}

/* The larger of two holes, or the lower of equal ones; block may be NULL. So the hole
 * that the tree holds depends only on the holes that there are: last_freed.c relies on it. */
static struct block *larger(struct block *block, struct block *other)
{
    uint64_t size = block ? block_size(block) : 0, more = block_size(other);
    return more > size || (more == size && block_address(other) < block_address(block)) ? other
                                                                                        : block;
}

static int may_serve(const struct block *block)
{
    return block->state == BLOCK_REUSABLE && !block->pinned;
}

void arena_fit_in(struct block *block)
{
    struct arena *arena = block->segment->arena;
    uint32_t slot = slot_of(block);
    uint32_t has = max_tree_of(&arena->fit, slot), more = grains_of(block_size(block));
    if (more > has || (more == has && larger(arena->slot[slot].largest, block) == block))
        set(arena, slot, block);
}

void arena_fit_out(const struct block *block)
{
    struct arena *arena = block->segment->arena;
    uint32_t slot = slot_of(block);
    struct block *most = NULL;
    if (arena->slot[slot].largest != block)
        return;
    uint64_t begin = arena_address(arena, slot), end = begin + CHUNK_BYTES;
    for (struct block *at = block->previous; at && block_address(at) >= begin; at = at->previous)
        most = may_serve(at) ? larger(most, at) : most;
    for (struct block *at = block->next; at && block_address(at) < end; at = at->next)
        most = may_serve(at) ? larger(most, at) : most;
    set(arena, slot, most);
}

struct block *arena_fit_find(const struct arena *arena, uint64_t size)
{
    uint32_t grains = grains_of(size);
    uint32_t slot = max_tree_find(&arena->fit, grains);
    if (slot == UINT32_MAX)
        return NULL;
    if (arena_loses_much(arena)) {
        uint32_t best = max_tree_best(&arena->fit, slot, grains);
        if (max_tree_of(&arena->fit, best) - grains <= grains / policy.fit_rest_part)
            slot = best;
    }
    return arena->slot[slot].largest;
}

struct block *arena_fit_alone(const struct arena *arena, uint64_t size)
{
    for (uint32_t slot = arena_next_idle(arena, 0); slot < arena->part[LARGE_POOL].top;
         slot = arena_next_idle(arena, arena_handle_end(arena, slot))) {
        struct block *hole = arena->slot[slot].hole;
        if (arena_begins_hole(arena, slot) && block_size(hole) == size && arena_is_alone(hole))
            return hole;
    }
    return NULL;
}

uint64_t arena_fit_largest(const struct arena *arena)
{
    return (uint64_t)max_tree_most(&arena->fit) * BLOCK_GRAIN;
}

int arena_fit_is_valid(const struct block *block)
{
    const struct arena *arena = block->segment->arena;
    const struct max_tree *fit = &arena->fit;
    uint32_t slot = slot_of(block), at = slot;
    const struct block *largest = arena->slot[slot].largest;
    if (!largest || slot_of(largest) != slot || block_size(largest) < block_size(block))
        return 0;
    for (unsigned level = 0; level < fit->top; level++, at /= MAX_TREE_NODE)
        if (fit->level[level + 1][at / MAX_TREE_NODE] < fit->level[level][at])
            return 0;
    return max_tree_of(fit, slot) == grains_of(block_size(largest)) &&
           arena_fit_largest(arena) >= block_size(block);
}
