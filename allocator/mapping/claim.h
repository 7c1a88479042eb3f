/* Claims: a block of mapped memory, made where no hole is large enough. The rule is at the head of
 * claim.c. */
#ifndef CACHALOT_ALLOCATOR_MAPPING_CLAIM_H
#define CACHALOT_ALLOCATOR_MAPPING_CLAIM_H

#include "allocator/pool/arena.h"

/* GROW: the driver may be asked for more memory. ALONE: the block shares no chunk with others.
 * DIVIDE: chunks may be divided (divide.h). */
enum claim_flags { CLAIM_GROW = 1, CLAIM_ALONE = 2, CLAIM_DIVIDE = 4 };

/* Claims a block of `size` bytes: *taken, in no pool. `flags`: enum claim_flags. Returns 0, the
 * driver's code for out of memory or another of its codes, or ALLOCATOR_PASS: the context has ended
 * meanwhile. Needs the domain's lock, and drops it while the driver is called. */
int arena_claim_in(struct arena *arena, uint64_t size, int flags, struct block **taken);

#endif
