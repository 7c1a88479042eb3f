/* Windows: where in an arena a block could be made, and what that would take. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_WINDOW_H
#define CACHALOT_ALLOCATOR_MAPPING_WINDOW_H

#include "allocator/pool/arena_chunks.h"

/* The end of a chunk whose begin a block has, or the begin of one whose end one has; bytes 0: none. */
struct corner {
    struct block *hole; /* that it is of */
    uint64_t bytes;
    uint32_t slot;
};

struct window {
    struct block *from; /* that it begins in */
    uint64_t begin;
    uint32_t first, end; /* slots */
    uint32_t low, high;  /* what changes when it is taken: mappings go as a whole */
    uint64_t tail;       /* bytes that the last slot needs; 0: as the others */
    uint64_t fresh, cost;
    struct corner front, back; /* that lie elsewhere yet (divide.h) */
};

/* The cheapest window for a block of `size` bytes in which no slot is `most` or higher; alone: that
 * shares no chunk with others. Returns 0 if there is none. */
int window_find(struct arena *arena, uint64_t size, int alone, uint32_t most,
                struct window *window);

/* Can the chunk be moved: is it nobody's, or idle where it is? Is there one such tail? 0: none. */
int window_chunk_is_idle(const struct arena *arena, uint32_t chunk);
uint32_t window_idle_tail(const struct arena *arena, uint64_t bytes);

/* How many handles of how many chunks could be moved, without tails; up to which number those that are nobody's
 * have been taken; the slot behind the last one that was taken from a hole. */
struct supply {
    uint32_t of[SPANS_MOST + 1], spare[SPANS_MOST + 1], behind[SPANS_MOST + 1];
};
void window_supply(const struct arena *arena, struct supply *supply);
int window_is_spare(const struct arena *arena, uint32_t number);

/* For assertions, while it is searched for: does it take nothing down where work may still use it? */
int window_is_safe(const struct arena *arena, const struct window *window);

/* Bytes that the driver must make for a block that shares no chunk, wherever it lies. */
uint64_t window_fresh_alone(const struct arena *arena, uint64_t size);

/* Bytes of the chunk that `slot` of the window needs. */
static inline uint64_t window_needs(const struct arena *arena, const struct window *window,
                                    uint32_t slot)
{
    return window->tail && slot == window->end - 1 ? window->tail : arena->chunk_bytes;
}

static inline uint64_t block_end(const struct block *block)
{
    return block_address(block) + block_size(block);
}

/* May what is mapped in an absent slot be taken down: is nobody at it, and all work over that may use it? */
static inline int arena_may_remap(const struct arena *arena, uint32_t slot)
{
    const struct slot *s = &arena->slot[slot];
    return !s->changing && !s->allowing && (!s->chunk || s->since <= arena->left.safe);
}

/* What is mapped in the slot is to be taken down, all of it: the slots are changing. */
void arena_displace(struct arena *arena, struct window *window, uint32_t slot);

#endif
