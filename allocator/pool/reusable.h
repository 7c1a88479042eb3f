/* The end of a block's use. The domain's lock is held. */
#ifndef CACHALOT_ALLOCATOR_POOL_REUSABLE_H
#define CACHALOT_ALLOCATOR_POOL_REUSABLE_H

#include "allocator/state/block.h"

/* A pending block is no longer active, for the books; and it goes into its pool, where it is merged. */
void block_leaves_use(struct block *block);
void block_becomes_reusable(struct block *block);

#endif
