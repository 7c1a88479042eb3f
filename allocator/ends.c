/* How an allocator ends: emptied and forgotten before the driver ends its context (of a primary one
 * only the driver knows whether it does, so it is forgotten after), and then buried.
 *
 * What the program had freed was natively free before, and is so for requests in other contexts:
 * until we begin they reach it (release), and while we are at it they wait. */
#include <stddef.h>

#include "allocator/arena.h"
#include "allocator/fence.h"
#include "allocator/segment.h"
#include "allocator/thread_caches.h"
#include "stats/pause.h"

#define LOOK_AGAIN_NS 1000000
#define MOST_WAITS 2000 /* of these */

static _Thread_local unsigned ends; /* that this thread is in: the driver may call back */

void domain_end_begins(struct domain *domain)
{
    ends++;
    domain_lock(domain);
    domain->ending++;
    domain_unlock(domain);
}

void domain_end_over(struct domain *domain)
{
    ends--;
    domain_lock(domain);
    domain->ending--;
    domain->ended++;
    domain_unlock(domain);
}

static void pause_outside(struct allocator *a)
{
    allocator_leave(a);
    pause_ns(LOOK_AGAIN_NS);
    allocator_enter(a);
}

void allocator_wait_for_ends(struct allocator *a, uint64_t since_ns)
{
    while (a->domain->ending > ends && !a->forgotten &&
           a->ops->now_ns() - since_ns < PRESSURE_WAIT_NS)
        pause_outside(a);
}

uint64_t allocator_give_back(struct allocator *a, uint64_t bytes, uint64_t timeout_ns)
{
    fence_flush_deferred(a, timeout_ns != 0);
    thread_caches_empty(a);
    if (timeout_ns)
        fence_wait_for(a, UINT64_MAX / 4, DEVICE_FOREVER);
    fence_poll(a, 1);
    return segment_release_idle(a, bytes, timeout_ns);
}

void allocator_empty(struct allocator *a)
{
    domain_lock(a->domain);
    int has_lane = a->domain->lane.context == a->context;
    domain_unlock(a->domain);
    if (has_lane)
        lane_finish(a->domain); /* what a native free would have waited for */
    allocator_enter(a);
    if (!a->error && !a->forgotten)
        allocator_give_back(a, UINT64_MAX, LOOK_AGAIN_NS); /* for the rest others wait */
    allocator_leave(a);
}

uint64_t allocator_forget(struct allocator *a)
{
    struct domain *domain = a->domain;
    uint64_t held = 0;
    allocator_enter(a);
    thread_caches_stop(domain, a->stats);
    thread_caches_pool(a);
    thread_caches_leave(a);
    a->forgotten = 1;
    lane_forget(a);
    fence_forget_all(a);
    while (a->segments)
        segment_forget(a->segments, &held);
    thread_caches_go_on(domain, a->stats);
    for (struct allocator **link = &domain->first; *link; link = &(*link)->next)
        if (*link == a) {
            *link = a->next;
            break;
        }
    /* Calls of other threads into the dying context: no new one begins. */
    for (int i = 0; a->calls && i < MOST_WAITS; i++)
        pause_outside(a);
    allocator_leave(a);
    return held;
}

void allocator_bury(struct allocator *a)
{
    if (a->arena)
        arena_bury(a);
    a->arena = NULL;
}
