/* A freed block leaves use and becomes reusable. The domain's lock is held. */
#ifndef CACHALOT_ALLOCATOR_POOL_REUSABLE_H
#define CACHALOT_ALLOCATOR_POOL_REUSABLE_H

#include "allocator/state/block.h"

/* leaves_use: the statistics no longer count a pending block as active. becomes_reusable: does
 * that, and puts the block into its pool, merged with its neighbours; idle handles go home. */
void block_leaves_use(struct block *block);
void block_becomes_reusable(struct block *block);

#endif
