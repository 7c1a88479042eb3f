/* Fences: when a freed block becomes reusable. The rule is at the head of fence.c. The domain's lock is held, and dropped
 * while the device is asked. */
#ifndef CACHALOT_ALLOCATOR_REUSE_FENCE_H
#define CACHALOT_ALLOCATOR_REUSE_FENCE_H

#include "allocator/reuse/fence_wait.h"

/* A freed block becomes reusable when the work submitted until now is done. async: natively the free waits for nothing.
 * Returns an error of the device that shows here, else 0. */
int fence_free(struct allocator *allocator, struct block *block, int async);

/* Books blocks whose fences have passed. needed: also shortly after a look in vain. */
void fence_poll(struct allocator *allocator, int needed);

/* A wait for what has been freed so far, where some is pending, for `budget_ns` in all. next: 1 when one more fence has
 * passed, 0 when no more is waited for. */
struct fence_wait {
    uint64_t begin_ns, budget_ns;
    uint64_t last; /* number of the last fence that is waited for */
};
struct fence_wait fence_wait_begin(struct allocator *allocator, uint64_t budget_ns);
int fence_wait_next(struct allocator *allocator, const struct fence_wait *wait);
void fence_wait_end(struct allocator *allocator, const struct fence_wait *wait);
void fence_wait_all(struct allocator *allocator, uint64_t budget_ns);

/* Has the context no work outstanding, or none after a wait of up to `timeout_ns`? 2: the driver cannot say, which counts as
 * idle where a native call would wait. */
int fence_is_idle(struct allocator *allocator, uint64_t timeout_ns);

/* What was freed during captures gets its fence, as far as that is allowed by now. wait: else the host waits. */
void fence_flush_deferred(struct allocator *allocator, int wait);

/* The context ends: nothing is pending any more. */
void fence_forget_all(struct allocator *allocator);

#endif
