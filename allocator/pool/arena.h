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

#include "allocator/pool/arena_layout.h"

/* Could the block hold a whole chunk? So that most need not be looked at. */
static inline int arena_is_large(const struct arena *arena, uint64_t size)
{
    return size >= arena->chunk_bytes || arena->tails;
}

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

/* Nothing is ever taken again from the slots of a live block: the program has set something there
 * that sticks. Retire: the block is reusable, and so are those around it: what lies below goes to
 * the driver when that is asked to take something, and then the addresses are as new. */
void arena_pin(struct block *block);
void arena_retire(struct block *block);

/* A block of `size` bytes, in no pool: from memory that is idle elsewhere; grow: and if that is too
 * little, from the driver. The lock is dropped meanwhile. serves: are there arenas for that size? */
int arena_serves(const struct allocator *allocator, uint64_t size);
int arena_claim(struct allocator *allocator, uint64_t size, struct block **block);
int arena_grow(struct allocator *allocator, uint64_t size, struct block **block);

/* Looks whether slots left some time ago are done with. */
void arena_poll(struct allocator *allocator, struct arena *arena);

/* Gives idle memory of the arena back, at least `bytes` if there is so much; returns bytes. */
uint64_t arena_release(struct allocator *allocator, struct arena *arena, uint64_t bytes,
                       uint64_t timeout_ns);

/* Bytes that can only be given back; that, and what was idle ever since the last call. */
uint64_t arena_retired(const struct allocator *allocator);
uint64_t arena_unused(struct allocator *allocator);

/* Has the driver allow all that is mapped once more. 0, or its first error. */
int arena_allow(struct allocator *allocator);

/* Forgets what the context knows of the arena's work: it ends. Bury: gives everything back to the driver after
 * that; nothing is under way. */
void arena_forget(struct allocator *allocator);
void arena_bury(struct allocator *allocator);

/* The part that a slot lies in. */
static inline enum stat_pool arena_pool_of(const struct arena *arena, uint64_t slot)
{
    return arena->part[SMALL_POOL].segment && slot >= arena->part[SMALL_POOL].first ? SMALL_POOL
                                                                                    : LARGE_POOL;
}

#define APART_MOST (MIB / 4) /* test/replay/tried.md, "Which blocks lie apart" */

/* Do blocks of `size` bytes lie apart from large ones? Those of the small pool do that are up to
 * APART_MOST; and all, where large ones share no chunk, or are the driver's own. */
static inline int arena_is_apart(const struct arena *arena, uint64_t size)
{
    return size <= APART_MOST ||
           (size <= MIB && (!arena->part[SMALL_POOL].segment || arena->irregular > 0 ||
                            arena->allocator->as_native));
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

#endif
