/* Fences: when a freed block becomes reusable. The rule is at the head of fence.c.
 *
 * All functions need the domain's lock, and drop it while they ask the device. */
#ifndef CACHALOT_ALLOCATOR_REUSE_FENCE_H
#define CACHALOT_ALLOCATOR_REUSE_FENCE_H

#include "allocator/reuse/fence_wait.h"

/* Frees a pending block: it becomes reusable when the work submitted until now has finished. async:
 * CUDA's free would not wait. Returns an error of the device that shows here, else 0. */
int fence_free(struct allocator *allocator, struct block *block, int async);

/* Makes blocks reusable whose fences have passed. After a query in vain, the device is asked again
 * only some requests later, unless `needed`. */
void fence_poll(struct allocator *allocator, int needed);

/* A wait for the fences that are pending when it begins. fence_patience says how long it lasts with
 * a budget of `budget_ns`. fence_wait_begin needs at least one pending fence. fence_wait_next
 * returns 1 when one more fence has passed, 0 when the wait is over. fence_wait_all does all three
 * steps. */
struct fence_wait {
    uint64_t begin_ns, budget_ns;
    uint64_t last; /* number of the last fence that the wait covers */
};
struct fence_wait fence_wait_begin(struct allocator *allocator, uint64_t budget_ns);
int fence_wait_next(struct allocator *allocator, const struct fence_wait *wait);
void fence_wait_end(struct allocator *allocator, const struct fence_wait *wait);
void fence_wait_all(struct allocator *allocator, uint64_t budget_ns);

/* Is the context idle, after a wait of at most `timeout_ns`? Returns 1 if it has no outstanding
 * work, and 0 if it has. Returns 2 if the driver cannot say. That counts as idle where a native
 * call would wait. */
int fence_is_idle(struct allocator *allocator, uint64_t timeout_ns);

/* Gives blocks freed during captures their fence, if no capture forbids it. wait: if one does, the
 * host waits instead. */
void fence_flush_deferred(struct allocator *allocator, int wait);

/* Drops all fences of a context that ends. */
void fence_forget_all(struct allocator *allocator);

#endif
