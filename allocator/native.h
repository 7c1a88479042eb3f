/* The end of mapped memory: from when on large blocks are the driver's own. Guarded by the domain's
 * lock. */
#ifndef CACHALOT_ALLOCATOR_NATIVE_H
#define CACHALOT_ALLOCATOR_NATIVE_H

#include "allocator/block.h"

/* Memory is short, and the driver has none for `size`. Returns 0 and *block, if a corner of mapped
 * memory has; else what the driver said, and large blocks are the driver's own from now on if
 * natively there had been room. */
int native_last_try(struct allocator *allocator, uint64_t size, struct block **block);

#endif
