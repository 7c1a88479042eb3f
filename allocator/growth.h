/* Where memory comes from when the pools have none. The lock is held, and dropped while the driver is asked. */
#ifndef CACHALOT_ALLOCATOR_GROWTH_H
#define CACHALOT_ALLOCATOR_GROWTH_H

#include "allocator/state/domain.h"

/* A reusable block for a request of `size` bytes, cut to size and in no pool; or NULL. */
struct block *growth_take(struct allocator *allocator, uint64_t size);

/* The same by all the ways to more memory, cheapest first. Returns 0 and *taken, the driver's code, or ALLOCATOR_PASS. */
int growth_find(struct allocator *allocator, uint64_t size, struct block **taken);

enum growth { GROW_SEGMENT, GROW_LEAST, GROW_NATIVE };
int growth_by_driver(struct allocator *allocator, uint64_t size, enum growth growth,
                     struct block **block);

#endif
