/* Segments: obtained from the driver and given back. The domain's lock is held. All functions
 * except segment_hand_over drop it during the driver's call. */
#ifndef CACHALOT_ALLOCATOR_SEGMENT_SEGMENT_H
#define CACHALOT_ALLOCATOR_SEGMENT_SEGMENT_H

#include "allocator/state/domain.h"

/* Obtains a segment of `bytes` bytes for `pool`, which `stat` counts. *block gets its one block,
 * which is in no pool. Returns 0, the driver's code, or ALLOCATOR_PASS: the context has ended
 * meanwhile, or the host is out of memory. */
int segment_obtain(struct allocator *allocator, enum pool pool, enum stat_pool stat, uint64_t bytes,
                   struct block **block);

/* Gives one idle segment back. Returns the driver's code; if that is not 0, the segment stays idle,
 * unless the context has ended. */
int segment_release(struct segment *segment);

/* Takes one idle segment off the books; the caller has the driver free it. */
void segment_hand_over(struct segment *segment);

/* Give idle segments back, the oldest first, until at least `bytes` bytes are released, and return
 * how many were. oldest: those that became idle up to `clock`; the context has no work outstanding.
 * whole: all, after a wait of up to `timeout_ns` for the context's work; 0 if it has not finished
 * by then. */
uint64_t segment_release_oldest(struct allocator *allocator, uint64_t bytes, uint64_t clock);
uint64_t segment_release_whole(struct allocator *allocator, uint64_t bytes, uint64_t timeout_ns);

#endif
