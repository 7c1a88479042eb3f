/* Entering and leaving an allocator: the domain's lock, calls into the device, visits. */
#include "allocator/state/enter.h"

#include <stddef.h>

#include "stats/os/pause.h"
#include "allocator/base/policy.h"

_Thread_local struct thread_cache *thread_cache_own;
_Thread_local struct own_visits allocator_own;

DIRECT void allocator_enter(struct allocator *a)
{
    domain_lock(a->domain);
    stats_begin(a->stats);
}

DIRECT void allocator_leave(struct allocator *a)
{
    allocator_before_leaving(a);
    domain_unlock(a->domain);
}

DIRECT void allocator_call(struct allocator *a)
{
    a->life.calls++;
    allocator_leave(a);
}

DIRECT void allocator_return(struct allocator *a)
{
    allocator_enter(a);
    a->life.calls--;
}

void allocator_pause(struct allocator *a)
{
    allocator_leave(a);
    pause_ns(policy.end_look_ns);
    allocator_enter(a);
}

int allocator_visit(struct allocator *a)
{
    int may = !a->life.forgotten && !a->life.away;
    a->life.visits += may;
    allocator_own.visits += may;
    return may;
}

/* A release of the context that takes longer is the last one: the context's outstanding work ends
 * with it, so the visit is not needed. */
int allocator_visit_soon(struct allocator *a)
{
    for (uint64_t i = 0;
         a->life.away && !a->life.forgotten && !allocator_own.ends && i < allocator_pauses(); i++)
        allocator_pause(a);
    return allocator_visit(a);
}

void allocator_visit_over(struct allocator *a)
{
    a->life.visits--;
    allocator_own.visits--;
}

uint64_t allocator_reserved(const struct allocator *a)
{
    uint64_t bytes = stats_current_all(a->stats, STAT_reserved_bytes);
    for (const struct allocator *other = a->domain->first; other; other = other->next)
        bytes += other->stats == a->stats ? other->growth.bytes : 0;
    return bytes;
}
