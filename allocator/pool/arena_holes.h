/* Holes of mapped memory: reusable and absent blocks, found by the slots that lie whole in them. The domain's lock is
 * held. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_HOLES_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_HOLES_H

#include "allocator/pool/arena.h"

/* Takes note that a block of an arena is reusable, of which the bytes outside [begin, end) were so before; that one
 * is so no more, of which `rest`, if any, was a part and still is. large: one that may hold chunks. */
void arena_note_in_large(struct block *block, uint64_t begin, uint64_t end);
void arena_note_out_large(const struct block *block, struct block *rest);

static inline void arena_note_in(struct block *block, uint64_t begin, uint64_t end)
{
    if (arena_is_large(block->segment->arena, block_size(block)) && !block->pinned)
        arena_note_in_large(block, begin, end);
}

static inline void arena_note_out(const struct block *block, struct block *rest)
{
    uint64_t size = block_size(block) + (rest ? block_size(rest) : 0);
    if (arena_is_large(block->segment->arena, size) && !block->pinned)
        arena_note_out_large(block, rest);
}

/* The reusable block that has an idle slot; the absent one that has an absent slot. */
struct block *arena_block_at(const struct arena *arena, uint32_t slot);
struct block *arena_absent_at(const struct arena *arena, uint32_t slot);

/* Does the reusable block begin and end with a chunk? */
int arena_is_alone(const struct block *block);

#endif
