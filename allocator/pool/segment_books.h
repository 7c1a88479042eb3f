/* The books of segments: which there are, which are idle, and what is counted of them. The domain's
 * lock is held. */
#ifndef CACHALOT_ALLOCATOR_POOL_SEGMENT_BOOKS_H
#define CACHALOT_ALLOCATOR_POOL_SEGMENT_BOOKS_H

#include "allocator/state/domain.h"

/* A segment with one block in it, on no books and in no pool yet; NULL without host memory. */
struct segment *segment_new(struct allocator *allocator, enum pool pool, enum stat_pool stat,
                            uint64_t address, uint64_t bytes);

/* Found by its addresses, and among its allocator's. */
void segment_list(struct segment *segment);

/* Listed and counted as reserved; no longer either, when it is idle or its context ends. */
void segment_link(struct segment *segment);
void segment_unlink(struct segment *segment);

/* The segment that has the address, or NULL. */
struct segment *segment_holding(const struct domain *domain, uint64_t address);

/* All of it is one reusable block, from now on; or no longer. */
void segment_becomes_idle(struct segment *segment);
void segment_leaves_idle(struct segment *segment);

/* The segment that has been idle for longest, or NULL. */
struct segment *segment_oldest_idle(const struct allocator *allocator);

#endif
