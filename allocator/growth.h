/* Where memory comes from when the pools have none. All functions need the domain's lock, and drop
 * it while they call the driver. */
#ifndef CACHALOT_ALLOCATOR_GROWTH_H
#define CACHALOT_ALLOCATOR_GROWTH_H

#include "allocator/state/domain.h"

/* Takes a reusable block for a request of `size` bytes, cut to size and in no pool. Returns NULL if
 * there is none. */
struct block *growth_take(struct allocator *allocator, uint64_t size);

/* Finds a block for a request of `size` bytes in all ways to more memory, cheapest first: *taken,
 * in no pool. Returns 0, the driver's code, or ALLOCATOR_PASS. */
int growth_find(struct allocator *allocator, uint64_t size, struct block **taken);

/* Asks the driver for a block of at least `size` bytes, from mapped memory or as a new segment:
 * *block, in no pool and not split. GROW_SEGMENT: as large as segments are. GROW_LEAST: no more
 * than is needed. GROW_NATIVE: exactly that, never to be reused (option cache:off). Returns 0, the
 * driver's code, or ALLOCATOR_PASS. */
enum growth { GROW_SEGMENT, GROW_LEAST, GROW_NATIVE };
int growth_by_driver(struct allocator *allocator, uint64_t size, enum growth growth,
                     struct block **block);

#endif
