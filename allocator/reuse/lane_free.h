/* A free by a thread alone, without the lock. */
#ifndef CACHALOT_ALLOCATOR_REUSE_LANE_FREE_H
#define CACHALOT_ALLOCATOR_REUSE_LANE_FREE_H

#include "allocator/reuse/lane.h"
#include "allocator/reuse/look.h"

/* lane_free (lane.h), for a block that goes into the thread's own cache. */
static inline __attribute__((always_inline)) int lane_free_alone(struct allocator *a)
{
    struct lane *lane = &a->domain->lane;
    if (!atomic_load_explicit(&lane->state.open, memory_order_relaxed))
        return 0;
    for (;;) {
        uint64_t word = atomic_load_explicit(&lane->state.word, memory_order_seq_cst);
        uint64_t freed = word | LANE_EARLY | LANE_DIRTY;
        int mode = (int)(word & LANE_MODE);
        if (mode == LANE_NONE)
            return look_allows(lane);
        if (mode == LANE_MANY || lane->context != a->context)
            return 0;
        if (word == freed || atomic_compare_exchange_strong(&lane->state.word, &word, freed))
            return 1;
    }
}

#endif
