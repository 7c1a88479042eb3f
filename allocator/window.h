/* Windows: where in an arena a block could be made, and what that would take. */
#ifndef CACHALOT_ALLOCATOR_WINDOW_H
#define CACHALOT_ALLOCATOR_WINDOW_H

#include "allocator/arena_parts.h"

struct window {
    struct block *from; /* that it begins in */
    uint64_t begin;
    uint32_t first, end; /* slots */
    uint64_t fresh, cost;
};

/* The cheapest window for a block of `size` bytes in which no slot is `most` or higher. Returns 0
 * if there is none. */
int window_find(struct arena *arena, uint64_t size, uint32_t most, struct window *window);

/* Can the chunk be moved: is it nobody's, or idle where it is? */
int window_chunk_is_idle(const struct arena *arena, uint32_t chunk);

static inline uint64_t block_end(const struct block *block)
{
    return block_address(block) + block_size(block);
}

#endif
