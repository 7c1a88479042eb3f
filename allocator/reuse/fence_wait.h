/* How long a thread waits for a fence: a request instead of growing, and a free in a crowd. A crowd
 * is many threads that free all the time. All functions need the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_REUSE_FENCE_WAIT_H
#define CACHALOT_ALLOCATOR_REUSE_FENCE_WAIT_H

#include "allocator/reuse/context_event.h"

#define OWN_FOREVER                                                                                \
    (DEVICE_FOREVER - 1) /* budget: for what this thread has freed alone, as it had natively */

/* Is a large part of the memory pending: neither in use nor reusable? */
int fence_is_fat(const struct allocator *allocator);

/* Returns how long to wait for `fence`, in ns, when `spent` ns of `budget` ns have passed. 0: not
 * at all; DEVICE_FOREVER: without limit. */
uint64_t fence_patience(const struct allocator *allocator, const struct fence *fence,
                        uint64_t spent, uint64_t budget);

/* Notes a turn: a request or a fence's free by `thread`, while fences are pending. A crowd ends
 * after `policy.crowd_turns` turns in a row of one thread while no other thread waits, if it has
 * lasted long enough. A task that moves from thread to thread finds fences of others, but no thread
 * runs ahead. Example: a training step, forward in one thread and backward in another.
 *
 * fence_crowd_begins: frees wait in line until the crowd ends. Each crowd lasts at least twice as
 * many turns as the one before. */
void fence_note_turn(struct allocator *allocator, uint64_t thread);
void fence_crowd_begins(struct allocator *allocator);

/* In a crowd: returns the number of the fence that the calling thread must not run ahead of, or 0.
 * The thread has just freed the blocks of `fence`. */
uint64_t fence_not_ahead_of(const struct allocator *allocator, const struct fence *fence);

/* Counts a wait that began at `begin_ns`. */
void fence_note_wait(struct allocator *allocator, uint64_t begin_ns);

#endif
