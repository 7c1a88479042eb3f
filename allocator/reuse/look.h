/* Looks: is all work seen? The rule is at the head of look.c. */
#ifndef CACHALOT_ALLOCATOR_REUSE_LOOK_H
#define CACHALOT_ALLOCATOR_REUSE_LOOK_H

#include "allocator/state/domain.h"

/* How many frees of the calling thread need no look while nothing is outstanding: only while the
 * lane's `trust` is the one of its last look. */
extern _Thread_local struct look_allowance {
    uint64_t trust;
    unsigned frees;
} look_allowance;

static inline __attribute__((always_inline)) int look_is_allowed(const struct lane *lane)
{
    return look_allowance.frees &&
           look_allowance.trust == atomic_load_explicit(&lane->state.trust, memory_order_relaxed);
}

/* Nothing is outstanding. Is a block freed now reusable at once? */
static inline __attribute__((always_inline)) int look_allows(const struct lane *lane)
{
    if (look_is_allowed(lane)) {
        look_allowance.frees--;
        return 1;
    }
    return !lane->ops->record;
}

/* Looks, if a look is due or has not ended. The caller holds the lock, which is dropped meanwhile.
 * at_free: at a free that natively waits for all work. at_lane: at a submission to the lane, by its
 * thread; returns 1 if the lock was dropped. `allocator`: of the lane's context, or NULL. */
void look_at_free_due(struct allocator *allocator);
int look_at_lane(struct allocator *allocator, const struct lane_stream *stream);

static inline void look_at_free(struct allocator *allocator)
{
    const struct lane *lane = &allocator->domain->lane;
    int mode = (int)(atomic_load(&lane->state.word) & LANE_MODE);
    if (allocator->look.fence || (mode == LANE_NONE && !look_is_allowed(lane)))
        look_at_free_due(allocator);
}

/* The context ends: forgets its look. */
void look_forget(struct allocator *allocator);

/* Call it before each free, without the lock. */
void look_around(struct domain *domain);
static inline void look_if_watched(struct domain *domain)
{
    if (__builtin_expect(!atomic_load_explicit(&domain->lane.state.open, memory_order_relaxed), 0))
        look_around(domain);
}

/* Work goes past: no free is ever reusable at once again. The lock is held. */
void look_end_reuse(struct domain *domain);

#endif
