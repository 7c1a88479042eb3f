/* What the files of arenas share: cutting blocks, moving chunks, what is below an address. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_PARTS_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_PARTS_H

#include "allocator/pool/arena.h"

/* alone: does the reusable block begin and end with a chunk?
 * isolate: cuts a reusable or absent block, and takes the part out of pool and lists; kit: enough
 * structs for that are in reserve, and who drops the lock in between takes them along, and puts
 * these `kits` back. put: as reusable or absent, and merged; returns what it has become. block_at,
 * absent_at: the reusable block that holds an idle slot, the absent one that holds an absent slot.
 * reunite: divided chunks of which all is reusable are one again (divide.h), where somebody
 * looks for what is idle. */
int arena_fill_kit(struct arena *arena, unsigned blocks);
void arena_put_kit(struct allocator *allocator, struct arena *arena, struct block *kit,
                   unsigned kits);
struct block *arena_cut(struct arena *arena, struct block *block, uint64_t address);
struct block *arena_isolate(struct arena *arena, struct block *block, uint64_t begin, uint64_t end);
struct block *arena_put(struct block *block, enum block_state state);
int arena_is_alone(const struct block *block);
struct block *arena_block_at(const struct arena *arena, uint32_t slot);
struct block *arena_absent_at(const struct arena *arena, uint32_t slot);
void arena_go_home(struct arena *arena, uint64_t begin, uint64_t end);
void arena_reunite(struct arena *arena);
void arena_evict(struct arena *arena, uint32_t slot, uint32_t end);
int arena_claim_in(struct arena *arena, uint64_t size, int flags, struct block **taken);

#define NEVER_LEAVES UINT32_MAX /* as a batch */

/* In a claim: may the driver be asked for more; does the block share no chunk with others; may chunks be divided? */
enum claim_flags { CLAIM_GROW = 1, CLAIM_ALONE = 2, CLAIM_DIVIDE = 4 };

static inline uint64_t arena_idle_bytes(const struct arena *arena)
{
    return (arena->idle_slots + arena->spares) * arena->chunk_bytes + arena->idle_tails;
}

/* Where an operation ends that took some: in the middle of one, blocks that it only isolates are in
 * no pool. */
static inline void arena_note_idle(struct arena *arena)
{
    uint64_t idle = arena_idle_bytes(arena);
    arena->idle_least = idle < arena->idle_least ? idle : arena->idle_least;
}

/* A chunk that nobody has becomes spare (1), or is so no more (-1). */
static inline void arena_count_spare(struct arena *arena, const struct chunk *chunk, int sign)
{
    uint64_t n = (uint64_t)(int64_t)sign;
    if (chunk->retired)
        arena->retired += n * chunk->bytes;
    else if (chunk->bytes < arena->chunk_bytes)
        arena->idle_tails += n * chunk->bytes;
    else
        arena->spares += (uint32_t)n;
}

/* The slot that holds the byte at `offset`. Each free asks, and a division takes as long as the rest. */
static inline uint64_t arena_slot_at(const struct arena *arena, uint64_t offset)
{
    return arena->shift ? offset >> arena->shift : offset / arena->chunk_bytes;
}

static inline uint64_t arena_address(const struct arena *arena, uint64_t slot)
{
    return arena->base + slot * arena->chunk_bytes;
}

static inline int arena_is_present(const struct arena *arena, uint32_t slot)
{
    return arena->present[slot] != NOT_PRESENT;
}

/* Bytes of memory that are present in the slot, from its begin. */
static inline uint64_t arena_present(const struct arena *arena, uint32_t slot)
{
    return arena_is_present(arena, slot) ? arena->chunk[arena->slot[slot].chunk].bytes : 0;
}

#endif
