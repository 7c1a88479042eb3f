/* Fences: when a freed block becomes reusable. The lock is dropped while the device is asked. */
#ifndef CACHALOT_ALLOCATOR_FENCE_H
#define CACHALOT_ALLOCATOR_FENCE_H

#include "allocator/domain.h"

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
    int late; /* recorded after its frees: only query, or wait with a limit */
};

int fence_free(struct allocator *allocator, struct block *block);
void fence_poll(struct allocator *allocator, int needed);
struct block *fence_wait_for(struct allocator *allocator, uint64_t size, uint64_t budget_ns);
#define IDLE_WAIT_NS UINT64_C(2000000000)      /* for what can wait until another time */
#define PRESSURE_WAIT_NS UINT64_C(10000000000) /* where the alternative is out of memory */
int fence_is_idle(struct allocator *allocator, uint64_t timeout_ns);
void fence_flush_deferred(struct allocator *allocator, int wait);
void fence_forget_all(struct allocator *allocator);

#endif
