/* The books of segments: which exist, which are idle, and their statistics. The domain's lock is
 * held. */
#ifndef CACHALOT_ALLOCATOR_POOL_SEGMENT_BOOKS_H
#define CACHALOT_ALLOCATOR_POOL_SEGMENT_BOOKS_H

#include "allocator/state/domain.h"

/* Makes a segment of `bytes` bytes at `address` with one block, on no books and in no pool; NULL:
 * no host memory. */
struct segment *segment_new(struct allocator *allocator, enum pool pool, enum stat_pool stat,
                            uint64_t address, uint64_t bytes);

/* Lists a segment: it is found by its addresses, and is among its allocator's segments. */
void segment_list(struct segment *segment);

/* link: lists a segment and counts it as reserved. unlink: undoes both; the segment is idle, or its
 * context ends. */
void segment_link(struct segment *segment);
void segment_unlink(struct segment *segment);

/* The segment in which the address lies, or NULL. */
struct segment *segment_holding(const struct domain *domain, uint64_t address);

/* The segment has become one reusable block; or it no longer is. */
void segment_becomes_idle(struct segment *segment);
void segment_leaves_idle(struct segment *segment);

/* The segment that has been idle for the longest time, or NULL. */
struct segment *segment_oldest_idle(const struct allocator *allocator);

#endif
