/* Claims: a block of mapped memory, made where no hole is large enough. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_CLAIM_H
#define CACHALOT_ALLOCATOR_MAPPING_CLAIM_H

#include "allocator/pool/arena.h"

/* May the driver be asked for more; does the block share no chunk with others; may chunks be divided? */
enum claim_flags { CLAIM_GROW = 1, CLAIM_ALONE = 2, CLAIM_DIVIDE = 4 };

/* *taken: a block of `size` bytes, in no pool. Returns 0, the driver's code for no memory or another of its codes, or
 * ALLOCATOR_PASS: the context has ended meanwhile. The lock is dropped while the driver is asked. */
int arena_claim_in(struct arena *arena, uint64_t size, int flags, struct block **taken);

#endif
