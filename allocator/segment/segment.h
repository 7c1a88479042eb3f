/* Segments: obtained from the driver and given back. All functions but segment_hand_over drop the lock while the driver
 * is asked. */
#ifndef CACHALOT_ALLOCATOR_SEGMENT_SEGMENT_H
#define CACHALOT_ALLOCATOR_SEGMENT_SEGMENT_H

#include "allocator/state/domain.h"

/* *block: all of a new segment, in no pool. Returns 0, the driver's code, or ALLOCATOR_PASS: the context has ended
 * meanwhile, or the host is out of memory. */
int segment_obtain(struct allocator *allocator, enum pool pool, enum stat_pool stat, uint64_t bytes,
                   struct block **block);

/* Gives one idle segment back. Returns the driver's code; if that is not 0, the segment is idle as before. */
int segment_release(struct segment *segment);

/* Forgets one idle segment, which the caller has the driver free. */
void segment_hand_over(struct segment *segment);

/* Gives idle segments back, the oldest first, at least `bytes` if there are so many: those that became idle up to `clock`
 * (a context without work), or all, once the context has no work or `timeout_ns` is over. Return bytes. */
uint64_t segment_release_oldest(struct allocator *allocator, uint64_t bytes, uint64_t clock);
uint64_t segment_release_whole(struct allocator *allocator, uint64_t bytes, uint64_t timeout_ns);

#endif
