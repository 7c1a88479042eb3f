/* Which hole among the large blocks of an arena a request gets: the lowest that is large enough, or, while much is
 * lost between blocks, one near that of which hardly anything is left. Guarded by the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_FIT_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_FIT_H

#include "allocator/pool/arena.h"

/* Takes note that a reusable block came into POOL_MAPPED, or left it, while its neighbours are as they were. */
void arena_fit_in(struct block *block);
void arena_fit_out(const struct block *block);

/* NULL: there is none. alone: it has exactly `size` bytes, and shares no chunk with others. */
struct block *arena_fit_find(const struct arena *arena, uint64_t size);
struct block *arena_fit_alone(const struct arena *arena, uint64_t size);

/* Bytes of the largest. */
uint64_t arena_fit_largest(const struct arena *arena);

/* Is the block, which is in the pool, found? For assertions. */
int arena_fit_is_valid(const struct block *block);

#endif
