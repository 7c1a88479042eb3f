/* Making arenas, one after another. */
#ifndef CACHALOT_ALLOCATOR_ARENA_MAKE_H
#define CACHALOT_ALLOCATOR_ARENA_MAKE_H

#include "allocator/arena.h"

/* An arena, `older` (NULL: none) being outgrown: create asks the driver, without the lock, and
 * returns NULL if there is none; begin puts it on the books, under it, and returns 0, or -1 without
 * host memory: then destroy it. */
struct arena *arena_create(struct allocator *allocator, const struct arena *older);
int arena_begin(struct allocator *allocator, struct arena *arena);
void arena_destroy(struct allocator *allocator, struct arena *arena);

/* Where the arena is not to grow by `size`, another one takes its place; the lock is dropped
 * meanwhile. */
void arena_outgrow(struct allocator *allocator, uint64_t size);

static inline int arena_is_outgrown(const struct arena *arena, uint64_t size)
{
    return arena->part[LARGE_POOL].booked + size > arena->most;
}

#endif
