/* Chunks: their books, and those of the newer arena that are made of the older one's.
 *
 * What is idle in an arena that is outgrown serves the newer one at once, whatever work is under way: so
 * many of its chunks as are as large together become one chunk there, which is mapped piece by piece. In
 * the older arena they are nobody's then, and what is mapped of them there stays until it is in the way,
 * as of any chunk that has moved. When the whole is given back, they are the older arena's again. */
#ifndef CACHALOT_ALLOCATOR_ARENA_CHUNKS_H
#define CACHALOT_ALLOCATOR_ARENA_CHUNKS_H

#include "allocator/arena_parts.h"

/* own: the slot has the chunk from now on, whose bytes are booked as the pool's that lies there. add: the
 * driver has made it; remove: and taken it back. */
void arena_own(struct arena *arena, uint32_t chunk, uint32_t slot);
void arena_add_chunk(struct arena *arena, uint32_t chunk);
void arena_remove_chunk(struct arena *arena, uint32_t chunk);

/* The older arena's chunk `part`, which nobody has, becomes one of those that `chunk`, a number not in
 * use, is made of; with the last of them it is a chunk as any. decompose: it is mapped nowhere any
 * more; what it is made of is spare there, unless it is leaving, too. */
void arena_compose(struct arena *arena, uint32_t chunk, uint32_t part);
void arena_decompose(struct arena *arena, uint32_t chunk);

/* With all that it is made of: the batch that it goes with (0: none); are exports under way? */
void arena_set_leaving(struct arena *arena, uint32_t chunk, uint32_t batch);
int arena_is_lent(const struct arena *arena, uint32_t chunk);

/* What has the handle of its byte at `offset`: the chunk, or one that it is made of. */
const struct chunk *arena_piece(const struct arena *arena, uint32_t chunk, uint64_t offset);

/* The number may be another chunk's. */
static inline void arena_free_number(struct arena *arena, uint32_t number)
{
    arena->unused = number < arena->unused ? number : arena->unused;
}

/* Bytes of what is idle in the older arena that could become this one's chunks. */
static inline uint64_t arena_gatherable(const struct arena *arena)
{
    const struct arena *older = arena->older;
    return older ? (older->idle_slots + older->spares) * older->chunk_bytes / arena->chunk_bytes *
                       arena->chunk_bytes
                 : 0;
}

#endif
