/* The last freed block stays out of its pool as long as only its next owner could tell. So a
 * program that allocates and frees the same size again and again changes no pool. The rule is at
 * the head of last_freed.c. All functions need the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_LAST_FREED_H
#define CACHALOT_ALLOCATOR_LAST_FREED_H

#include "allocator/state/domain.h"
#include "stats/os/direct.h"

/* Frees a block that the program held, with all that belongs to a free, and keeps it out of its
 * pool. Returns 1, or 0 if the block cannot be kept: then nothing is done. idle: no work is
 * outstanding anywhere; else the lane decides. */
DIRECT int last_freed_keep(struct block *block);
int last_freed_keep_idle(struct block *block);

/* Puts the last freed block, which there must be, into its pool. */
void last_freed_put(struct domain *domain);

/* Serves a request for `bytes` bytes with the last freed block, with all that belongs to a request.
 * Returns 1 and *address, or 0: then nothing is done. */
DIRECT int last_freed_take(struct allocator *allocator, uint64_t bytes, uint64_t *address);

#endif
