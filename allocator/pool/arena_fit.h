/* Which hole among the large blocks of an arena a request gets: the lowest that is large enough, or
 * one near it of which hardly anything is left over. The domain's lock is held. */
#ifndef CACHALOT_ALLOCATOR_POOL_ARENA_FIT_H
#define CACHALOT_ALLOCATOR_POOL_ARENA_FIT_H

#include "allocator/pool/arena.h"

/* A reusable block has come into POOL_MAPPED, or leaves it, while its neighbours stay as they
 * are. */
void arena_fit_in(struct block *block);
void arena_fit_out(const struct block *block);

/* find: the hole for a request of `size` bytes. alone: one of exactly `size` bytes that shares no
 * chunk with other blocks. NULL: there is none. */
struct block *arena_fit_find(const struct arena *arena, uint64_t size);
struct block *arena_fit_alone(const struct arena *arena, uint64_t size);

/* Bytes of the largest hole. */
uint64_t arena_fit_largest(const struct arena *arena);

/* Would the tree find this block, which is in the pool? For assertions. */
int arena_fit_is_valid(const struct block *block);

#endif
