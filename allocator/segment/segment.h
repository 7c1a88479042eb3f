/* Segments: obtained from the driver and given back. The lock is dropped while the driver is asked.
 */
#ifndef CACHALOT_ALLOCATOR_SEGMENT_SEGMENT_H
#define CACHALOT_ALLOCATOR_SEGMENT_SEGMENT_H

#include "allocator/state/domain.h"

/* A segment with one block in it, on no books and in no pool yet; NULL without host memory. */
struct segment *segment_new(struct allocator *allocator, enum pool pool, enum stat_pool stat,
                            uint64_t address, uint64_t bytes);

/* Found by its addresses, and among its allocator's. */
void segment_list(struct segment *segment);

/* Bytes that the device's contexts have reserved, and are about to. */
uint64_t segment_reserved(const struct allocator *allocator);

enum growth { GROW_SEGMENT, GROW_LEAST, GROW_NATIVE };
int segment_grow(struct allocator *allocator, uint64_t size, enum growth growth,
                 struct block **block);
int segment_release(struct segment *segment);
void segment_hand_over(struct segment *segment);
void segment_forget(struct segment *segment, uint64_t *held); /* adds blocks of the program */
void segment_pin(struct segment *segment, struct block *block);
struct segment *segment_holding(const struct domain *domain, uint64_t address);
uint64_t segment_release_idle(struct allocator *allocator, uint64_t bytes, uint64_t timeout_ns);
uint64_t segment_release_whole(struct allocator *allocator, uint64_t bytes, uint64_t timeout_ns);
uint64_t segment_release_unused(struct allocator *allocator);
void segment_collect_garbage(struct allocator *allocator, uint64_t size);
void segment_becomes_idle(struct segment *segment);
void segment_leaves_idle(struct segment *segment);

#endif
