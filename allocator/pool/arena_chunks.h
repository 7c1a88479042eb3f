/* Chunks and handles: their books.
 *
 * A handle is what the driver makes and maps as a whole: a chunk, or several. Those have numbers in a
 * row, lie side by side wherever they are mapped, are idle together, move as one, and go as one. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_CHUNKS_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_CHUNKS_H

#include <string.h>

#include "allocator/pool/arena.h"

#define SPANS_MOST (POLICY_HANDLE_MOST / (2 * MIB)) /* chunks of a handle */

/* own: the slot has the chunk from now on, whose bytes are booked as the pool's that lies there. */
void arena_own(struct arena *arena, uint32_t chunk, uint32_t slot);

/* Numbers for a handle of `span` chunks of `bytes` each that has yet to be made, from `least` on, below
 * which this claim has taken what is free. add: the driver has made it; remove: and taken it back. By the
 * first of its chunks. */
uint32_t arena_number_handle(struct arena *arena, uint32_t least, uint32_t span, uint64_t bytes);
void arena_add_handle(struct arena *arena, uint32_t first);
void arena_remove_handle(struct arena *arena, uint32_t first);

/* The batch that the handle of the chunk goes with (0: none). */
void arena_set_leaving(struct arena *arena, uint32_t chunk, uint32_t batch);

/* Is much of what is reserved neither idle nor active? */
int arena_loses_much(const struct arena *arena);

/* Chunks of the handles to be made for a block of `size` bytes, of which `missing` are absent. */
uint32_t arena_span_for(const struct arena *arena, uint64_t size, uint64_t missing);

/* Is the chunk the first, or the only one, of its handle? The first slot of what is mapped in a slot. */
static inline int arena_is_first(const struct arena *arena, uint32_t number)
{
    return arena->chunk[number].first == number;
}

static inline uint32_t arena_handle_at(const struct arena *arena, uint32_t slot)
{
    uint32_t number = arena->slot[slot].chunk;
    return slot - (number - arena->chunk[number].first);
}

static inline uint32_t arena_handle_end(const struct arena *arena, uint32_t slot)
{
    return arena_handle_at(arena, slot) + arena->chunk[arena->slot[slot].chunk].span;
}

/* Bytes of the handle that the chunk is of. */
static inline uint64_t arena_handle_bytes(const struct arena *arena, uint32_t number)
{
    return arena->chunk[number].span * arena->chunk[number].bytes;
}

/* The number may be another chunk's. */
static inline void arena_free_number(struct arena *arena, uint32_t number)
{
    arena->tails -= arena->chunk[number].bytes < arena->chunk_bytes;
    arena->unused = number < arena->unused ? number : arena->unused;
}

/* Are exports of the handle under way? */
static inline int arena_is_lent(const struct arena *arena, uint32_t number)
{
    return arena->chunk[arena->chunk[number].first].lent != 0;
}

/* The chunk is to be mapped at `slot` no more: if it was at home there, it has no home until it is
 * idle next (arena_go_home). */
static inline void arena_leave_home(struct arena *arena, uint32_t chunk, uint32_t slot)
{
    if (arena->chunk[chunk].home == slot + 1)
        arena->chunk[chunk].home = 0;
}

/* The next slot from `slot` on, of either part, that an idle handle begins in, or a tail; `slots`: there is none. */
static inline uint32_t arena_next_idle(const struct arena *arena, uint32_t slot)
{
    while ((slot = arena_used(arena, slot)) < arena->slots) {
        uint32_t top = arena->part[arena_pool_of(arena, slot)].top;
        const uint8_t *idle = memchr(arena->idle + slot, 1, top - slot);
        if (idle)
            return (uint32_t)(idle - arena->idle);
        slot = top;
    }
    return slot;
}

/* Is an idle slot the first whole one of its hole? Behind a tail lies a gap. */
static inline int arena_begins_hole(const struct arena *arena, uint32_t slot)
{
    return !slot || !arena->idle[slot - 1] ||
           (arena->tails && arena_present(arena, slot - 1) != arena->chunk_bytes);
}

#endif
