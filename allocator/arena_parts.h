/* What the files of arenas share: cutting blocks, moving chunks, what is below an address. */
#ifndef CACHALOT_ALLOCATOR_ARENA_PARTS_H
#define CACHALOT_ALLOCATOR_ARENA_PARTS_H

#include "allocator/arena.h"

/* isolate: cuts a reusable or absent block, and takes the part out of pool and lists; kit: enough
 * structs for that are in reserve, and who drops the lock in between takes them along. put: as
 * reusable or absent, and merged. block_at: that holds an idle slot. */
int arena_fill_kit(struct arena *arena, unsigned blocks);
void arena_put_kit(struct allocator *allocator, struct block *kit);
struct block *arena_cut(struct arena *arena, struct block *block, uint64_t address);
struct block *arena_isolate(struct arena *arena, struct block *block, uint64_t begin, uint64_t end);
void arena_put(struct block *block, enum block_state state);
struct block *arena_block_at(const struct arena *arena, uint32_t slot);
void arena_go_home(struct arena *arena, uint64_t begin, uint64_t end);
void arena_evict(struct arena *arena, uint32_t slot);
void arena_unmap_tables(struct arena *arena);
void arena_add_chunk(struct allocator *allocator, uint32_t chunk);

/* Where an operation ends that took some: in the middle of one, blocks that it only cuts or merges
 * are in no pool. */
static inline void arena_note_idle(struct arena *arena)
{
    uint32_t idle = arena->idle_slots + arena->spares;
    arena->idle_least = idle < arena->idle_least ? idle : arena->idle_least;
}

static inline uint64_t arena_address(const struct arena *arena, uint64_t slot)
{
    return arena->base + slot * arena->chunk_bytes;
}

static inline int arena_is_present(const struct arena *arena, uint32_t slot)
{
    uint32_t chunk = arena->slot[slot].chunk;
    return chunk && arena->chunk[chunk].owner == slot + 1;
}

#endif
