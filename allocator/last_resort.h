/* What a request gets when memory is short and the driver has none. The lock is held. */
#ifndef CACHALOT_ALLOCATOR_LAST_RESORT_H
#define CACHALOT_ALLOCATOR_LAST_RESORT_H

#include "allocator/state/domain.h"

/* Memory is short, and the driver has none for `size`. Returns 0 and *block, if a corner of mapped
 * memory has; else what the driver said, and large blocks are the driver's own from now on if
 * natively there had been room. */
int last_resort_take(struct allocator *allocator, uint64_t size, struct block **block);

/* Memory is short: what a small request has of any hole among large blocks, or NULL. cornered: one
 * had to lately, and the driver has neither given nor got back anything since: the next may at
 * once. */
struct block *last_resort_corner(struct allocator *allocator, uint64_t size);
int last_resort_is_cornered(const struct allocator *allocator);

#endif
