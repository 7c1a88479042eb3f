/* Pools of reusable blocks: taking, splitting, merging. */
#ifndef CACHALOT_ALLOCATOR_POOL_H
#define CACHALOT_ALLOCATOR_POOL_H

#include "allocator/block.h"

enum pool pool_for(const struct allocator *allocator, uint64_t size);
struct block *pool_take(struct allocator *allocator, uint64_t size);
void pool_split(struct allocator *allocator, struct block *block, uint64_t size);
void pool_insert(struct allocator *allocator, struct block *block);
void pool_remove(struct allocator *allocator, struct block *block);
void pool_merge(struct allocator *allocator, struct block *block);  /* and inserts */
void pool_unlist(struct allocator *allocator, struct block *block); /* no more found by address */
void pool_forget(struct allocator *allocator, struct block *block); /* in no pool, nor needed */
void block_leaves_use(struct block *block); /* for the books: it is no longer active */
void block_becomes_reusable(struct block *block);

#endif
