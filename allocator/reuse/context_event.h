/* Context events: points in time, each passed when all work submitted to the context before it has
 * finished.
 *
 * A fence is a context event with the blocks that wait for it. A mark is one without blocks. All
 * functions here need the domain's lock. Those that ask the device drop it meanwhile. */
#ifndef CACHALOT_ALLOCATOR_REUSE_CONTEXT_EVENT_H
#define CACHALOT_ALLOCATOR_REUSE_CONTEXT_EVENT_H

#include "allocator/state/domain.h"

enum fence_state { FENCE_RECORDING, FENCE_PENDING, FENCE_GONE };

struct fence {
    void *event;
    uint64_t owner;  /* the thread that freed: it may wait for the event without limit */
    uint64_t number; /* order of becoming pending */
    uint64_t recorded_ns;
    uint64_t covers; /* fences up to this number were recorded before this one began */
    struct block_list blocks;
    struct fence *next, *previous;
    unsigned users; /* threads that use the event: meanwhile it must not be recorded again */
    enum fence_state state;
    int late; /* recorded after its frees, or for a free that natively does not wait:
               * only query it, or wait with a limit */
};

/* One context's part of an event in every context (everywhere.h). `fence` is on no list; NULL: there
 * is no event, so the part has passed. */
struct point {
    struct point *next;
    struct allocator *allocator;
    struct fence *fence;
};

/* Makes a fence without blocks, in the list of those being recorded. Returns NULL without host
 * memory. The caller records its event without the lock, then takes the fence out of that list
 * (fence_unlink_recording). */
struct fence *fence_make(struct allocator *allocator);
void fence_unlink_recording(struct allocator *allocator, struct fence *fence);

/* Drops a fence that nothing needs any longer. While a thread uses its event, the last of those
 * threads drops it again. */
void fence_drop(struct allocator *allocator, struct fence *fence);

/* Records a fence without blocks, on no list. Returns NULL if that failed, and *code says why (0:
 * the context ended meanwhile).
 *
 * fence_has_passed: returns 1 if it has passed, after a wait of at most `timeout_ns`. */
struct fence *fence_record_alone(struct allocator *allocator, int *code);
int fence_has_passed(struct allocator *allocator, struct fence *fence, uint64_t timeout_ns);

/* Records a mark for a lane: an event of all work submitted to the context until now, on no list.
 * Returns NULL if the event could not be recorded. Then the host has waited for that work, or the
 * context has ended. */
struct fence *fence_mark(struct allocator *allocator);

/* Waits as CUDA's free does. Returns 0, a lasting error of the context, or DEVICE_DEFERRED: a
 * passing error, which is none of the program's. */
int fence_synchronize(struct allocator *allocator);

/* Marks the work submitted until now as work that the host may see. */
void fence_note_host_work(struct allocator *allocator);

/* Waits for work that the host may see. Returns an error of the device, or 0. */
int fence_wait_for_host_work(struct allocator *allocator);

#endif
