/* Fences: when a freed block becomes reusable. The lock is dropped while the device is asked. */
#ifndef CACHALOT_ALLOCATOR_REUSE_FENCE_H
#define CACHALOT_ALLOCATOR_REUSE_FENCE_H

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

/* Waits as the native free does. A passing error is none of the program's: DEVICE_DEFERRED. */
int fence_synchronize(struct allocator *allocator);

/* A mark for a lane: an event of all work submitted to the context by now, on no list. NULL if none
 * could be made: then the host has waited for that work. The lock is dropped meanwhile. */
struct fence *fence_mark(struct allocator *allocator);
void fence_drop(struct allocator *allocator, struct fence *fence); /* nobody needs it any more */

/* A fence without blocks, recorded now and on no list; NULL with a code if that could not be. Has
 * one passed, after a wait of up to `timeout_ns`? Both drop the lock meanwhile. */
struct fence *fence_record_alone(struct allocator *allocator, int *code);
int fence_has_passed(struct allocator *allocator, struct fence *fence, uint64_t timeout_ns);

/* Asks the device about a pending fence, waiting up to `timeout` ns; the lock is dropped meanwhile.
 * Returns 0 when it has passed (and its blocks are reusable), else the condition or error. */
int fence_ask(struct allocator *allocator, struct fence *fence, uint64_t timeout);

/* Is much of the memory neither in use nor reusable, but waiting for fences? */
int fence_is_fat(const struct allocator *allocator);

/* A turn: a request, or a fence's free, by `thread` while fences are pending. After some of one
 * thread, while no other waits, there is no crowd: a task that goes from thread to thread (a
 * training step: forward here, backward there) finds fences of others, but nobody runs ahead of
 * anybody. */
void fence_note_turn(struct allocator *allocator, uint64_t thread);

/* What the free of a just recorded fence waits for where many threads free. Returns an error of the
 * context, else 0. */
int fence_wait_in_line(struct allocator *allocator, const struct fence *fence);

/* Waits for work that the host may see. Returns an error of the device, else 0. */
int fence_wait_for_host_work(struct allocator *allocator);

int fence_free(struct allocator *allocator, struct block *block, int async);
void fence_poll(struct allocator *allocator, int needed);

/* Waits for what has been freed, for so long at most; OWN_FOREVER: for what this thread has freed
 * alone, as it had natively. */
#define OWN_FOREVER (DEVICE_FOREVER - 1)
struct block *fence_wait_for(struct allocator *allocator, uint64_t size, uint64_t budget_ns);
#define IDLE_WAIT_NS UINT64_C(2000000000)      /* for what can wait until another time */
#define PRESSURE_WAIT_NS UINT64_C(10000000000) /* where the alternative is out of memory */
int fence_is_idle(struct allocator *allocator, uint64_t timeout_ns); /* 2: it cannot be said */
void fence_flush_deferred(struct allocator *allocator, int wait);
void fence_forget_all(struct allocator *allocator);

#endif
