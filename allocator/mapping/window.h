/* Windows: where in an arena a claim could make a block, and at what cost. All functions need
 * the domain's lock, and keep it. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_WINDOW_H
#define CACHALOT_ALLOCATOR_MAPPING_WINDOW_H

#include "allocator/pool/arena_chunks.h"

/* A corner: the end of a chunk whose start a block has, or the start of one whose end a block has.
 * bytes 0: none. */
struct corner {
    struct block *hole; /* that it is part of */
    uint64_t bytes;
    uint32_t slot;
};

struct window {
    struct block *from; /* in which the window begins */
    uint64_t begin;
    uint32_t first, end; /* slots [first, end) */
    uint32_t low, high;  /* slots [low, high) change with it: mappings go as a whole */
    uint64_t fresh, cost;
    struct corner front, back; /* corners that are still in other slots (divide.h) */
};

/* Finds the cheapest window for a block of `size` bytes that uses no slot from `most` on. alone:
 * the block shares no chunk with others. Returns 1 and fills *window, or returns 0. */
int window_find(struct arena *arena, uint64_t size, int alone, uint32_t most,
                struct window *window);

/* window_chunk_is_idle: can the chunk be moved, since no slot owns it, or it is idle in its slot?
 */
int window_chunk_is_idle(const struct arena *arena, uint32_t chunk);

/* Idle handles, by their number of chunks. of: how many there are. spare: the number
 * up to which handles that no slot owns have been taken. behind: the slot behind the last handle
 * taken from a hole. window_supply counts them. window_is_spare: is it a chunk that no slot
 * owns, and that may be taken? */
struct supply {
    uint32_t of[SPANS_MOST + 1], spare[SPANS_MOST + 1], behind[SPANS_MOST + 1];
};
void window_supply(const struct arena *arena, struct supply *supply);
int window_is_spare(const struct arena *arena, uint32_t number);

/* For assertions during a search: does the window take down no mapping that work may still use? */
int window_is_safe(const struct arena *arena, const struct window *window);

/* Returns the bytes that the driver must make for a block that shares no chunk, wherever it
 * lies. */
uint64_t window_fresh_alone(const struct arena *arena, uint64_t size);

static inline uint64_t block_end(const struct block *block)
{
    return block_address(block) + block_size(block);
}

/* May the mapping of an absent slot be taken down? No thread may be at it, and all work that may
 * use it must be over. */
static inline int arena_may_remap(const struct arena *arena, uint32_t slot)
{
    const struct slot *s = &arena->slot[slot];
    return !s->changing && !s->allowing && (!s->chunk || s->since <= arena->left.safe);
}

/* Plans to take down what is mapped in the slot, all of it: its slots are changing. */
void arena_displace(struct arena *arena, struct window *window, uint32_t slot);

#endif
