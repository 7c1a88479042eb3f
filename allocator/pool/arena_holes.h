/* Holes of mapped memory: reusable and absent blocks, found by the slots that lie wholly in them.
 * The domain's lock is held. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_HOLES_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_HOLES_H

#include "allocator/pool/arena.h"

/* in: a block of an arena is reusable; its bytes outside [begin, end) were reusable before. out: a
 * block is no longer reusable; `rest`, the part behind it, still is (NULL: there is none). _large:
 * for blocks that may hold a chunk. */
void arena_note_in_large(struct block *block, uint64_t begin, uint64_t end);
void arena_note_out_large(const struct block *block, struct block *rest);

static inline void arena_note_in(struct block *block, uint64_t begin, uint64_t end)
{
    if (arena_is_large(block_size(block)) && !block->pinned)
        arena_note_in_large(block, begin, end);
}

static inline void arena_note_out(const struct block *block, struct block *rest)
{
    uint64_t size = block_size(block) + (rest ? block_size(rest) : 0);
    if (arena_is_large(size) && !block->pinned)
        arena_note_out_large(block, rest);
}

/* The reusable block in which an idle slot lies; the absent block in which an absent slot lies. */
struct block *arena_block_at(const struct arena *arena, uint32_t slot);
struct block *arena_absent_at(const struct arena *arena, uint32_t slot);

/* Does the reusable block begin and end with a chunk, so that it shares none with other blocks? */
int arena_is_alone(const struct block *block);

#endif
