/* Mapped memory (expandable_segments): blocks lie in a range of addresses, far larger than
 * the memory, and physical memory is mapped below them where it is needed.
 *
 * The range is cut into slots, the memory into chunks of the same size; smaller ones, tails, lie at
 * the front of a slot, and the rest of its addresses stays absent. Several chunks may be one handle
 * of the driver's (arena_chunks.h). A chunk may be mapped in several
 * slots at once; its bytes belong to blocks in one of them, its owner: there they are
 * present, in the others absent. (Of a divided one another slot has a part: divide.h.) The
 * head of arena.c says why that is enough. Guarded by the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_H

#include "allocator/base/policy.h"
#include "allocator/pool/arena_layout.h"

/* Could the block hold a whole chunk? So that most need not be looked at. */
static inline int arena_is_large(const struct arena *arena, uint64_t size)
{
    return size >= arena->chunk_bytes || arena->tails;
}

/* The part that a slot lies in. */
static inline enum stat_pool arena_pool_of(const struct arena *arena, uint64_t slot)
{
    return arena->part[SMALL_POOL].segment && slot >= arena->part[SMALL_POOL].first ? SMALL_POOL
                                                                                    : LARGE_POOL;
}

/* Do blocks of `size` bytes lie apart from large ones? Those of the small pool do that are up to
 * policy.apart_most; and all, where large ones share no chunk, or are the driver's own. */
static inline int arena_is_apart(const struct arena *arena, uint64_t size)
{
    return size <= policy.apart_most ||
           (size <= MIB && (!arena->part[SMALL_POOL].segment || arena->packing.irregular > 0 ||
                            arena->allocator->growth.as_native));
}

/* The part for them. */
static inline struct arena_part *arena_part_for(struct arena *arena, uint64_t size)
{
    return &arena->part[arena_is_apart(arena, size) ? SMALL_POOL : LARGE_POOL];
}

/* The first slot from `slot` on that may ever have been used; `slots`: there is none. */
static inline uint32_t arena_used(const struct arena *arena, uint32_t slot)
{
    const struct arena_part *small = &arena->part[SMALL_POOL];
    if (slot < arena->part[LARGE_POOL].top)
        return slot;
    slot = slot < small->first ? small->first : slot;
    return slot < small->top ? slot : arena->slots;
}

#define NEVER_LEAVES UINT32_MAX /* as a batch */

static inline uint64_t arena_idle_bytes(const struct arena *arena)
{
    return (arena->free.slots + arena->free.spares) * arena->chunk_bytes + arena->free.tails;
}

/* Where an operation ends that took some: in the middle of one, blocks that it only isolates are in
 * no pool. */
static inline void arena_note_idle(struct arena *arena)
{
    uint64_t idle = arena_idle_bytes(arena);
    arena->free.least = idle < arena->free.least ? idle : arena->free.least;
}

/* A chunk that nobody has becomes spare (1), or is so no more (-1). */
static inline void arena_count_spare(struct arena *arena, const struct chunk *chunk, int sign)
{
    uint64_t n = (uint64_t)(int64_t)sign;
    if (chunk->retired)
        arena->free.retired += n * chunk->bytes;
    else if (chunk->bytes < arena->chunk_bytes)
        arena->free.tails += n * chunk->bytes;
    else
        arena->free.spares += (uint32_t)n;
}

/* The slot that holds the byte at `offset`. Each free asks, and a division takes as long as the rest. */
static inline uint64_t arena_slot_at(const struct arena *arena, uint64_t offset)
{
    return arena->shift ? offset >> arena->shift : offset / arena->chunk_bytes;
}

static inline uint64_t arena_address(const struct arena *arena, uint64_t slot)
{
    return arena->base + slot * arena->chunk_bytes;
}

static inline int arena_is_present(const struct arena *arena, uint32_t slot)
{
    return arena->present[slot] != NOT_PRESENT;
}

/* Bytes of memory that are present in the slot, from its begin. */
static inline uint64_t arena_present(const struct arena *arena, uint32_t slot)
{
    return arena_is_present(arena, slot) ? arena->chunk[arena->slot[slot].chunk].bytes : 0;
}

/* The other slot that has bytes of the chunk that is mapped in a slot (divide.h); the slot itself: none has. */
static inline uint32_t arena_other_slot(const struct arena *arena, uint32_t slot)
{
    const struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
    if (!chunk->second || !arena_is_present(arena, slot))
        return slot;
    return (chunk->owner - 1 == slot ? chunk->second : chunk->owner) - 1;
}

#endif
