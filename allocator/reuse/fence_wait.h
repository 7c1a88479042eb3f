/* How long a fence is waited for: by a request, in place of growing; and by a free, where many threads free. */
#ifndef CACHALOT_ALLOCATOR_REUSE_FENCE_WAIT_H
#define CACHALOT_ALLOCATOR_REUSE_FENCE_WAIT_H

#include "allocator/reuse/context_event.h"

#define OWN_FOREVER                                                                                \
    (DEVICE_FOREVER - 1) /* budget: for what this thread has freed alone, as it had natively */

/* Is much of the memory neither in use nor reusable, but waiting for fences? */
int fence_is_fat(const struct allocator *allocator);

/* How long to wait for `fence`, in ns, when `spent` of `budget` is gone; 0: not at all. */
uint64_t fence_patience(const struct allocator *allocator, const struct fence *fence,
                        uint64_t spent, uint64_t budget);

/* A turn: a request, or a fence's free, by `thread` while fences are pending. After some of one
 * thread, while no other waits, there is no crowd: a task that goes from thread to thread (a
 * training step: forward here, backward there) finds fences of others, but nobody runs ahead of
 * anybody. */
void fence_note_turn(struct allocator *allocator, uint64_t thread);
void fence_crowd_begins(struct allocator *allocator);

/* In a crowd: the number of the fence that the calling thread, which has just freed the blocks of `fence`, must not run
 * ahead of; 0: none. */
uint64_t fence_not_ahead_of(const struct allocator *allocator, const struct fence *fence);

/* Counts a wait that began at `begin_ns`. */
void fence_note_wait(struct allocator *allocator, uint64_t begin_ns);

#endif
