/* How an allocator ends: forgotten before the driver ends its context, and then buried. Of a primary
 * one only the driver knows whether it does: it is put away before, and forgotten after. No call
 * enters a context that may have ended: the driver leaves undefined what comes of its events.
 *
 * What the program had freed was natively free before, and is so for requests in other contexts:
 * until we begin they reach it (release), and while we are at it they wait. */
#include <stddef.h>

#include "allocator/pool/arena.h"
#include "allocator/reuse/fence.h"
#include "allocator/segment/segment.h"
#include "allocator/thread_cache/locked.h"
#include "stats/os/pause.h"

#define LOOK_AGAIN_NS 1000000
#define MOST_WAITS 2000 /* of these */
#define EMPTY_WAIT_NS 100000000

/* That this thread is in: the driver may call back. */
static _Thread_local unsigned ends;
static _Thread_local int visits;

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

static int is_alone(const struct allocator *a)
{
    const struct allocator *other = a->domain->first;
    while (other && (other == a || other->stats != a->stats))
        other = other->next;
    return !other;
}

/* What needs no long wait, here or in the driver: native frees have waited, but an end may do
 * without. */
void allocator_empty(struct allocator *a)
{
    allocator_enter(a);
    if (!a->error && !a->forgotten && !a->away && !is_alone(a)) {
        thread_caches_empty(a);
        fence_wait_for(a, UINT64_MAX / 4, EMPTY_WAIT_NS);
        if (a->arena && !a->forgotten)
            arena_release(a, a->arena, UINT64_MAX, EMPTY_WAIT_NS);
        if (!a->forgotten && fence_is_idle(a, EMPTY_WAIT_NS) == 1)
            segment_release_whole(a, UINT64_MAX, 0);
    }
    allocator_leave(a);
}

int allocator_visit(struct allocator *a)
{
    int may = !a->forgotten && !a->away;
    a->visits += may;
    visits += may;
    return may;
}

void allocator_visit_over(struct allocator *a)
{
    a->visits--;
    visits--;
}

/* A release that takes long is the last one, and what the context has left to do ends with it. */
int allocator_visit_soon(struct allocator *a)
{
    for (int i = 0; a->away && !a->forgotten && !ends && i < MOST_WAITS; i++)
        pause_outside(a);
    return allocator_visit(a);
}

void allocator_put_away(struct allocator *a, int away)
{
    allocator_enter(a);
    int back = a->away && !away;
    a->away = away;
    for (int i = 0; away && a->visits > visits && i < MOST_WAITS; i++)
        pause_outside(a);
    if (back && !a->error && !a->forgotten) { /* captures may have ended meanwhile */
        a->captures_ended++;
        fence_flush_deferred(a, 0);
    }
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
    arena_forget(a);
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
    metadata_clear(a->spares, CACHE_STEPS * sizeof *a->spares);
    domain_lock(a->domain);
    /* By a claim, say, that takes longer than its context's end has waited; who waits for a fence uses none of it. */
    if (a->calls > a->waiting)
        a->arena = NULL;
    domain_unlock(a->domain);
    if (a->arena)
        arena_bury(a);
    a->arena = NULL;
}
