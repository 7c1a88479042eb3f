/* Packing: which blocks of mapped memory share chunks (head of packing.c). The domain's lock is
 * held. */
#ifndef CACHALOT_ALLOCATOR_POOL_PACKING_H
#define CACHALOT_ALLOCATOR_POOL_PACKING_H

#include "allocator/pool/arena.h"
#include "stats/os/direct.h"

/* Notes a request for a block of `size` bytes, more than 1 MiB. */
void packing_note(struct allocator *allocator, uint64_t size);

/* The bytes from which on a new size counts, on a device or limit of `most` bytes. Beside such a
 * block the loss at the end of a chunk is nothing. */
uint64_t packing_noted(uint64_t most);

/* Must a block of `size` bytes share no chunk with other blocks at this moment? */
DIRECT int packing_is_exact(const struct allocator *allocator, uint64_t size);

/* Counts a block of `size` bytes that the program gets (sign 1) or has freed (-1). */
DIRECT void packing_count_large(struct arena *arena, uint64_t size, int sign);

static inline void packing_count(struct allocator *allocator, uint64_t size, int sign)
{
    if (allocator->arena && size > MIB)
        packing_count_large(allocator->arena, size, sign);
}

/* Do many blocks outlive their sizes? Then a block of `size` bytes lies in handles of one chunk,
 * which pack best, though they need more driver calls. */
int packing_is_varied(const struct allocator *allocator, uint64_t size);

/* The bytes that the driver takes for a large block of `bytes` bytes: whole granules of 2 MiB. */
static inline uint64_t native_bytes_of(uint64_t bytes)
{
    return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

#endif
