/* The arena: the range of addresses of one context's mapped memory (expandable_segments). It is far
 * larger than the memory, which is mapped below its blocks where they need it.
 *
 * The range is cut into slots, and the memory into chunks of the same size. Several chunks may be
 * one handle (arena_chunks.h). A chunk may be mapped in several slots at once. Its bytes belong to
 * blocks in one of them, its owner: there they are present, in the others absent. (Of a divided
 * chunk another slot has a part: divide.h.) The head of arena_blocks.c says why that is correct.
 * The domain's lock guards all of it. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_H

#include "allocator/base/policy.h"
#include "allocator/pool/arena_layout.h"

/* Could a block of `size` bytes hold a whole chunk? Most blocks could not and need no look at
 * slots. */
static inline int arena_is_large(uint64_t size)
{
    return size >= CHUNK_BYTES;
}

/* The pool in whose part a slot lies. */
static inline enum stat_pool arena_pool_of(const struct arena *arena, uint64_t slot)
{
    return arena->part[SMALL_POOL].segment && slot >= arena->part[SMALL_POOL].first ? SMALL_POOL
                                                                                    : LARGE_POOL;
}

/* Do blocks of `size` bytes lie apart from large ones? Those up to policy.apart_most always do. The
 * others of the small pool do if large blocks share no chunk, or are the driver's own, or if no
 * part is for small blocks. Except those of 1 MiB: they need a whole page (pool_round). */
static inline int arena_is_apart(const struct arena *arena, uint64_t size)
{
    return size <= policy.apart_most || (size <= MIB && arena->allocator->growth.as_native) ||
           (size < MIB && (!arena->part[SMALL_POOL].segment || arena->packing.irregular > 0));
}

/* The part in which blocks of `size` bytes lie. */
static inline struct arena_part *arena_part_for(struct arena *arena, uint64_t size)
{
    return &arena->part[arena_is_apart(arena, size) ? SMALL_POOL : LARGE_POOL];
}

/* The first slot from `slot` on that may ever have been used; `arena->slots`: there is none. */
static inline uint32_t arena_used(const struct arena *arena, uint32_t slot)
{
    const struct arena_part *small = &arena->part[SMALL_POOL];
    if (slot < arena->part[LARGE_POOL].top)
        return slot;
    slot = slot < small->first ? small->first : slot;
    return slot < small->top ? slot : arena->slots;
}

#define NEVER_LEAVES UINT32_MAX /* as a batch */

/* Bytes that could be moved at once: idle in a slot, or spare. */
static inline uint64_t arena_idle_bytes(const struct arena *arena)
{
    return (uint64_t)(arena->free.slots + arena->free.spares) * CHUNK_BYTES;
}

/* Updates the low-water mark of idle bytes, at the end of an operation that has used some. In the
 * middle of one, blocks that are only isolated are in no pool. */
static inline void arena_note_idle(struct arena *arena)
{
    uint64_t idle = arena_idle_bytes(arena);
    arena->free.least = idle < arena->free.least ? idle : arena->free.least;
}

/* Notes what one block could be made of, in the context of the device that has most of it. */
static inline void arena_note_movable(const struct arena *arena)
{
    const struct allocator *own = arena->allocator, *a = own->domain->first;
    uint64_t most = arena_idle_bytes(arena);
    for (; a; a = a->next)
        if (a != own && a->stats == own->stats && a->arena) {
            uint64_t bytes = arena_idle_bytes(a->arena);
            most = bytes > most ? bytes : most;
        }
    stats_set(own->stats, COUNTER_movable_bytes, most);
}

/* Counts a chunk that no slot has as spare (sign 1), or no more (-1). */
static inline void arena_count_spare(struct arena *arena, const struct chunk *chunk, int sign)
{
    *(chunk->retired ? &arena->free.retired : &arena->free.spares) += (uint32_t)sign;
    arena_note_movable(arena);
}

/* The slot of the byte at `offset` in the arena. */
static inline uint64_t arena_slot_at(uint64_t offset)
{
    return offset / CHUNK_BYTES;
}

/* The address at which a slot begins. */
static inline uint64_t arena_address(const struct arena *arena, uint64_t slot)
{
    return arena->base + slot * CHUNK_BYTES;
}

/* Has the slot memory of its own, or a part of a divided chunk? */
static inline int arena_is_present(const struct arena *arena, uint32_t slot)
{
    return arena->present[slot] != NOT_PRESENT;
}

/* The other slot that has bytes of this slot's chunk (divide.h); the slot itself: there is none. */
static inline uint32_t arena_other_slot(const struct arena *arena, uint32_t slot)
{
    const struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
    if (!chunk->second || !arena_is_present(arena, slot))
        return slot;
    return (chunk->owner - 1 == slot ? chunk->second : chunk->owner) - 1;
}

#endif
