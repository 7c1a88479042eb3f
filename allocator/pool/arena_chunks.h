/* The books of chunks and handles. The domain's lock is held.
 *
 * A handle is what the driver makes and maps as a whole: one chunk or several. The chunks of a
 * handle have consecutive numbers and lie side by side wherever they are mapped. They are idle
 * together, and move and go back as one. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_CHUNKS_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_CHUNKS_H

#include <string.h>

#include "allocator/pool/arena.h"
#include "stats/os/direct.h"

#define SPANS_MOST (POLICY_HANDLE_MOST / CHUNK_BYTES) /* chunks of a handle */

/* Makes the slot the owner of the chunk. The pool in whose part the slot lies counts its bytes. */
DIRECT void arena_own(struct arena *arena, uint32_t chunk, uint32_t slot);

/* number: returns the first of `span` free numbers in a row, for a new handle. It is at least
 * `least`: this claim has taken the free numbers below. add: books a handle that the driver has
 * made. remove: books out one that the driver took back. `first` is the number of its first chunk. */
uint32_t arena_number_handle(struct arena *arena, uint32_t least, uint32_t span);
void arena_add_handle(struct arena *arena, uint32_t first);
void arena_remove_handle(struct arena *arena, uint32_t first);

/* Sets the batch with which the chunk's handle goes back to the driver; 0: none. */
void arena_set_leaving(struct arena *arena, uint32_t chunk, uint32_t batch);

/* Does more lie lost between blocks than policy.loss_part allows? */
int arena_loses_much(const struct arena *arena);

/* How many chunks the handles have that are made for a block of `size` bytes, of which `missing`
 * bytes are absent. */
uint32_t arena_span_for(const struct arena *arena, uint64_t size, uint64_t missing);

/* Is the chunk the first, or the only one, of its handle? */
static inline int arena_is_first(const struct arena *arena, uint32_t number)
{
    return arena->chunk[number].first == number;
}

/* The first slot of the handle that is mapped in `slot`; and the slot behind its last one. */
static inline uint32_t arena_handle_at(const struct arena *arena, uint32_t slot)
{
    uint32_t number = arena->slot[slot].chunk;
    return slot - (number - arena->chunk[number].first);
}

static inline uint32_t arena_handle_end(const struct arena *arena, uint32_t slot)
{
    return arena_handle_at(arena, slot) + arena->chunk[arena->slot[slot].chunk].span;
}

/* Bytes of the chunk's handle. */
static inline uint64_t arena_handle_bytes(const struct arena *arena, uint32_t number)
{
    return arena->chunk[number].span * CHUNK_BYTES;
}

/* Another chunk may get this number. */
static inline void arena_free_number(struct arena *arena, uint32_t number)
{
    arena->unused = number < arena->unused ? number : arena->unused;
}

/* Are exports of the chunk's handle under way? */
static inline int arena_is_lent(const struct arena *arena, uint32_t number)
{
    return arena->chunk[arena->chunk[number].first].lent != 0;
}

/* The chunk loses its mapping at `slot`. If its home was there, it has none until it is idle next
 * (arena_go_home). */
static inline void arena_leave_home(struct arena *arena, uint32_t chunk, uint32_t slot)
{
    if (arena->chunk[chunk].home == slot + 1)
        arena->chunk[chunk].home = 0;
}

/* The next slot from `slot` on, of either part, in which an idle handle begins;
 * `arena->slots`: there is none. */
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

/* Is an idle slot the first idle one of its hole? */
static inline int arena_begins_hole(const struct arena *arena, uint32_t slot)
{
    return !slot || !arena->idle[slot - 1];
}

#endif
