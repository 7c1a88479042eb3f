/* The block that was freed last, out of its pool as long as nobody but its next owner could tell:
 * what takes and gives back the same size again and again changes no pool. The rule is at the head
 * of last_freed.c; all with the lock. */
#ifndef CACHALOT_ALLOCATOR_LAST_FREED_H
#define CACHALOT_ALLOCATOR_LAST_FREED_H

#include "allocator/state/domain.h"

/* A block that the program has freed, with all that a free is: 1 if it is kept. */
int last_freed_keep(struct block *block);

/* What is kept goes into its pool. */
void last_freed_put(struct domain *domain);

/* A request, with all that one is: 1 if it got what is kept. */
int last_freed_take(struct allocator *allocator, uint64_t bytes, uint64_t *address);

#endif
