/* Entering and leaving an allocator: the domain's lock, calls into the device, visits to a context on behalf of another. */
#ifndef CACHALOT_ALLOCATOR_STATE_ENTER_H
#define CACHALOT_ALLOCATOR_STATE_ENTER_H

#include <assert.h>

#include "allocator/state/domain.h"

/* Locks and unlocks for a change of this allocator's numbers; in debug builds checks it when
 * leaving. */
void allocator_enter(struct allocator *allocator);
void allocator_leave(struct allocator *allocator);

/* The same around a call into the device, which the end of a context waits for. */
void allocator_call(struct allocator *allocator);
void allocator_return(struct allocator *allocator);

/* May its context be called into for others? Then whoever ends it waits until that is over. It may
 * be a forgotten one: its `next` may have been followed after a driver's call. soon: waits until it
 * is known, the lock dropped, but not for ever. */
int allocator_visit(struct allocator *allocator);
int allocator_visit_soon(struct allocator *allocator);
void allocator_visit_over(struct allocator *allocator);

/* What a thread that holds no lock must know (`slow`). */
static inline void allocator_note_slow(struct allocator *a)
{
    int slow = a->life.error | a->life.forgotten | a->fences.no_events ? SLOW_ALL
               : allocator_owes_host(a)                                ? SLOW_FREES
                                                                       : SLOW_NOBODY;
    if (slow != atomic_load_explicit(&a->slow, memory_order_relaxed))
        atomic_store_explicit(&a->slow, slow, memory_order_relaxed);
}

/* What allocator_leave does, but for the unlock. */
static inline void allocator_before_leaving(struct allocator *a)
{
    stats_note_peaks(a->stats);
    allocator_note_slow(a);
    assert(a->domain->is_valid(a));
    stats_end(a->stats);
}

/* Drops the lock for a millisecond. A wait for other threads pauses so often at most. */
void allocator_pause(struct allocator *allocator);

/* Bytes that the device's contexts have reserved, and are about to. */
uint64_t allocator_reserved(const struct allocator *allocator);

/* What this thread is in, also when the driver calls it back: ends of contexts, visits. */
extern _Thread_local struct own_visits {
    unsigned ends;
    int visits;
} allocator_own;

/* The calling thread's cache, of one domain; NULL: it has none. */
extern _Thread_local struct thread_cache *thread_cache_own;

#endif
