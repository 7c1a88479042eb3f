/* How an allocator ends: it is forgotten before the driver ends its context, and buried afterwards.
 * Only the driver knows whether a release of a primary context ends it. So its allocator is put
 * away before the release, and forgotten after it. No call enters a context that may have ended:
 * the driver leaves undefined what becomes of its events.
 *
 * With CUDA, freed memory is there for requests in other contexts. Until the end begins, such
 * requests reach it (release.h). While the end is under way, they wait. */
#include <stddef.h>

#include "allocator/allocator.h"
#include "allocator/base/policy.h"
#include "allocator/mapping/release.h"
#include "allocator/pool/arena_blocks.h"
#include "allocator/pool/pool.h"
#include "allocator/pool/segment_books.h"
#include "allocator/reuse/fence.h"
#include "allocator/segment/segment.h"
#include "allocator/state/record.h"
#include "allocator/thread_cache/locked.h"
#include "stats/os/pause.h"
#include "allocator/reuse/lane.h"
#include "allocator/state/enter.h"

void domain_end_begins(struct domain *domain)
{
    allocator_own.ends++;
    domain_lock(domain);
    domain->ending++;
    domain_unlock(domain);
}

void domain_end_over(struct domain *domain)
{
    allocator_own.ends--;
    domain_lock(domain);
    domain->ending--;
    domain->ended++;
    domain_unlock(domain);
}

static int is_alone(const struct allocator *a)
{
    const struct allocator *other = a->domain->first;
    while (other && (other == a || other->stats != a->stats))
        other = other->next;
    return !other;
}

/* Gives back what needs no long wait, here or in the driver. CUDA's frees have waited, but the end
 * of a context need not wait. */
void allocator_empty(struct allocator *a)
{
    allocator_enter(a);
    if (!a->life.error && !a->life.forgotten && !a->life.away && !is_alone(a)) {
        thread_caches_empty(a);
        fence_wait_all(a, policy.moment_wait_ns);
        if (a->arena && !a->life.forgotten)
            arena_release(a, a->arena, UINT64_MAX, policy.moment_wait_ns);
        if (!a->life.forgotten && fence_is_idle(a, policy.moment_wait_ns) == 1)
            segment_release_whole(a, UINT64_MAX, 0);
    }
    allocator_leave(a);
}

void allocator_put_away(struct allocator *a, int away)
{
    allocator_enter(a);
    int back = a->life.away && !away;
    a->life.away = away;
    for (uint64_t i = 0; away && a->life.visits > allocator_own.visits && i < allocator_pauses();
         i++)
        allocator_pause(a);
    if (back && !a->life.error && !a->life.forgotten) { /* captures may have ended meanwhile */
        a->fences.captures_ended++;
        fence_flush_deferred(a, 0);
    }
    allocator_leave(a);
}

/* Adds the number of blocks that the program still holds to *held. */
static void forget_segment(struct segment *segment, uint64_t *held)
{
    struct allocator *a = segment->allocator;
    for (struct block *block = segment->first; block; block = block->next) {
        enum stat_pool stat = block_stat(block);
        if (block->state == BLOCK_REUSABLE) {
            pool_remove(a, block);
        } else if (block->state == BLOCK_ALLOCATED || block->state == BLOCK_PENDING) {
            if (block->state == BLOCK_ALLOCATED) {
                record_block(block, EVENT_free);
                *held += 1;
                stats_histogram(a->stats, block_requested(block), -1);
                stats_subtract(a->stats, STAT_allocation, stat, 1);
                stats_subtract(a->stats, STAT_allocated_bytes, stat, block_size(block));
            }
            stats_subtract(a->stats, STAT_requested_bytes, stat, block_requested(block));
            stats_subtract(a->stats, STAT_active, stat, 1);
            stats_subtract(a->stats, STAT_active_bytes, stat, block_size(block));
        }
    }
    for (struct block *block = segment->first, *next; block; block = next) {
        next = block->next;
        pool_forget(a, block);
    }
    if (segment->arena) {
        arena_put_kit(a, segment->arena, segment->arena->kit.first, segment->arena->kit.count);
        segment->arena->kit.first = NULL;
        segment->arena->kit.count = 0;
    }
    segment_unlink(segment);
    slab_give(&a->domain->segment_slab, segment);
}

uint64_t allocator_forget(struct allocator *a)
{
    struct domain *domain = a->domain;
    uint64_t held = 0;
    allocator_enter(a);
    thread_caches_stop(domain, a->stats);
    thread_caches_pool(a);
    thread_caches_leave(a);
    a->life.forgotten = 1;
    lane_forget(a);
    fence_forget_all(a);
    arena_forget(a);
    while (a->segments)
        forget_segment(a->segments, &held);
    thread_caches_go_on(domain, a->stats);
    for (struct allocator **link = &domain->first; *link; link = &(*link)->next)
        if (*link == a) {
            *link = a->next;
            break;
        }
    stats_set(a->stats, COUNTER_movable_bytes, 0);
    for (const struct allocator *other = domain->first; other; other = other->next)
        if (other->stats == a->stats && other->arena)
            arena_note_movable(other->arena);
    /* Waits for calls of other threads into the context that ends: no new one begins. */
    for (uint64_t i = 0; a->life.calls && i < allocator_pauses(); i++)
        allocator_pause(a);
    allocator_leave(a);
    return held;
}

void allocator_bury(struct allocator *a)
{
    metadata_clear(a->shared.transfer, CACHE_STEPS * sizeof *a->shared.transfer);
    domain_lock(a->domain);
    /* A call still uses the arena, for example a claim that takes longer than the wait for it. A
     * wait for a fence uses none of it. */
    if (a->life.calls > a->crowd.waiting)
        a->arena = NULL;
    domain_unlock(a->domain);
    if (a->arena)
        arena_bury(a);
    a->arena = NULL;
}
