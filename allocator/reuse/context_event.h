/* Context events: points in time, passed when all work submitted to the context before them has finished. A fence is one
 * with the blocks that wait for it; a mark is one without. The domain's lock is held, and dropped while the device is
 * asked. */
#ifndef CACHALOT_ALLOCATOR_REUSE_CONTEXT_EVENT_H
#define CACHALOT_ALLOCATOR_REUSE_CONTEXT_EVENT_H

#include "allocator/state/domain.h"

enum fence_state { FENCE_RECORDING, FENCE_PENDING, FENCE_GONE };

struct fence {
    void *event;
    uint64_t owner;  /* thread that freed, and may wait for it without limit */
    uint64_t number; /* order of becoming pending */
    uint64_t recorded_ns;
    uint64_t covers; /* fences numbered up to this one were recorded before this one began */
    struct block_list blocks;
    struct fence *next, *previous;
    unsigned users; /* threads asking about the event now: it must not be marked anew */
    enum fence_state state;
    int late; /* recorded after its frees, or for one that does not wait natively: only query, or
                 wait with a limit */
};

/* A fence with no blocks yet, in the list of those being recorded; NULL without host memory. Made
 * under the lock, it is recorded outside it, and then taken from that list. */
struct fence *fence_make(struct allocator *allocator);
void fence_unlink_recording(struct allocator *allocator, struct fence *fence);

/* Nobody needs the fence any more. */
void fence_drop(struct allocator *allocator, struct fence *fence);

/* A fence without blocks, recorded now and on no list; NULL with a code if that could not be. Has
 * one passed, after a wait of up to `timeout_ns`? */
struct fence *fence_record_alone(struct allocator *allocator, int *code);
int fence_has_passed(struct allocator *allocator, struct fence *fence, uint64_t timeout_ns);

/* A mark for a lane: an event of all work submitted to the context by now, on no list. NULL if none
 * could be made: then the host has waited for that work. */
struct fence *fence_mark(struct allocator *allocator);

/* Waits as the native free does. A passing error is none of the program's: DEVICE_DEFERRED. */
int fence_synchronize(struct allocator *allocator);

/* Marks what has been submitted until now as work that the host may see. */
void fence_note_host_work(struct allocator *allocator);

/* Waits for work that the host may see. Returns an error of the device, else 0. */
int fence_wait_for_host_work(struct allocator *allocator);

#endif
