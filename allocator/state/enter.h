/* Entering and leaving an allocator: the domain's lock, calls into the device, and visits to a
 * context on behalf of another one. */
#ifndef CACHALOT_ALLOCATOR_STATE_ENTER_H
#define CACHALOT_ALLOCATOR_STATE_ENTER_H

#include <assert.h>

#include "allocator/base/policy.h"
#include "allocator/state/domain.h"
#include "stats/os/direct.h"

/* enter: takes the domain's lock and begins a change of this allocator's statistics. leave: ends
 * the change and gives the lock back; a debug build checks the allocator first. */
DIRECT void allocator_enter(struct allocator *allocator);
DIRECT void allocator_leave(struct allocator *allocator);

/* Around a call into the device, with the lock held before and after. call: counts the call and
 * leaves. return: enters again. The end of the context waits for calls that are under way. */
DIRECT void allocator_call(struct allocator *allocator);
DIRECT void allocator_return(struct allocator *allocator);

/* A visit: calls into this context on behalf of another one. visit returns 1 and counts the visit,
 * or 0 if the context may not be called into (away, forgotten). The end of the context waits until
 * visit_over. The allocator may be forgotten: a walk over `next` may reach it after a driver call.
 * soon: while the context is away, drops the lock and waits, with at most policy.end_looks pauses.
 * The lock is held. */
int allocator_visit(struct allocator *allocator);
int allocator_visit_soon(struct allocator *allocator);
void allocator_visit_over(struct allocator *allocator);

/* Updates `slow`, from which threads without the lock know what they may do. */
static inline void allocator_note_slow(struct allocator *a)
{
    int slow = a->life.error | a->life.forgotten | a->fences.no_events ? SLOW_ALL
               : allocator_owes_host(a)                                ? SLOW_FREES
                                                                       : SLOW_NOBODY;
    if (slow != atomic_load_explicit(&a->slow, memory_order_relaxed))
        atomic_store_explicit(&a->slow, slow, memory_order_relaxed);
}

/* Does what allocator_leave does, except for the unlock. */
static inline void allocator_before_leaving(struct allocator *a)
{
    stats_note_peaks(a->stats);
    allocator_note_slow(a);
    assert(a->domain->is_valid(a));
    stats_end(a->stats);
}

/* Drops the lock for policy.end_look_ns. A wait for other threads pauses at most allocator_pauses()
 * times: for policy.idle_wait_ns. */
void allocator_pause(struct allocator *allocator);

static inline uint64_t allocator_pauses(void)
{
    return policy.idle_wait_ns / policy.end_look_ns;
}

/* Bytes that all contexts of the device have reserved or are about to reserve. The lock is held. */
uint64_t allocator_reserved(const struct allocator *allocator);

/* Ends of contexts, and visits, that the calling thread is in, also while the driver calls it
 * back. */
extern _Thread_local struct own_visits {
    unsigned ends;
    int visits;
} allocator_own;

/* The calling thread's cache, which is of one domain; NULL: it has none. */
extern _Thread_local struct thread_cache *thread_cache_own;

/* Does no other thread allocate, free or submit? Then this one may wait for work that was
 * outstanding at a free: CUDA's free would have waited for it. 0 where threads have no caches, and
 * in threads of the library. */
static inline int allocator_is_alone(const struct allocator *a)
{
    const struct lane_thread *submitter = a->domain->lane.threads;
    return thread_cache_own && a->domain->threads == 1 && !(submitter && submitter->next);
}

#endif
