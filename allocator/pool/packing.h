/* When blocks of mapped memory share chunks, and from when on large blocks are the driver's own.
 * Guarded by the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_POOL_PACKING_H
#define CACHALOT_ALLOCATOR_POOL_PACKING_H

#include "allocator/pool/arena.h"

/* Takes note of a request for a large block. The size from which on a new one counts, where there
 * are `most` bytes: what is lost at the end of a chunk is nothing beside it then. */
void packing_note(struct allocator *allocator, uint64_t size);

uint64_t packing_noted(uint64_t most);

/* Does a block of this size share no chunk with others now? */
int packing_is_exact(const struct allocator *allocator, uint64_t size);

/* Takes note that a block was handed out (1), or is the program's no more (-1). */
void packing_count_large(struct arena *arena, uint64_t size, int sign);

static inline void packing_count(struct allocator *allocator, uint64_t size, int sign)
{
    if (allocator->arena && size > MIB)
        packing_count_large(allocator->arena, size, sign);
}

/* Do blocks outlive their sizes, and are they many? Then one of this size is to lie in small chunks,
 * which pack best, though they need more calls. */
int packing_is_varied(const struct allocator *allocator, uint64_t size);

/* Requests of more than a MiB for each of their sizes, so far. */
static inline uint64_t packing_repeats(const struct arena *arena)
{
    return arena->packing.requests / (arena->packing.distinct + 1);
}

/* What the driver takes for a large block. */
static inline uint64_t native_bytes_of(uint64_t bytes)
{
    return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

#endif
