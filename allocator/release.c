/* What goes back to the driver: for a request that finds no memory, for other processes, and beyond
 * the user's threshold. */
#include "allocator/allocator.h"
#include "allocator/base/policy.h"
#include "allocator/release.h"

#include <stddef.h>

#include "allocator/mapping/release.h"
#include "allocator/pool/pool.h"
#include "allocator/pool/segment_books.h"
#include "allocator/reuse/fence.h"
#include "allocator/segment/segment.h"
#include "allocator/thread_cache/locked.h"
#include "allocator/state/enter.h"

uint64_t release_idle(struct allocator *a, uint64_t bytes, uint64_t timeout_ns)
{
    uint64_t released = a->arena ? arena_release(a, a->arena, bytes, timeout_ns) : 0;
    return released < bytes ? released + segment_release_whole(a, bytes - released, timeout_ns)
                            : released;
}

uint64_t release_of(struct allocator *a, uint64_t bytes, uint64_t fences_ns, uint64_t idle_ns)
{
    if (!allocator_visit(a))
        return 0;
    fence_flush_deferred(a, fences_ns != 0);
    thread_caches_empty(a);
    if (fences_ns)
        fence_wait_all(a, fences_ns);
    fence_poll(a, 1);
    uint64_t released = release_idle(a, bytes, idle_ns);
    allocator_visit_over(a);
    return released;
}

/* Gives back idle memory of all contexts of this device. If `timeout_ns` is not 0, it waits for
 * frees in other contexts too: with CUDA what they freed is there when they return. */
uint64_t release_for(struct allocator *a, uint64_t bytes, uint64_t timeout_ns)
{
    uint64_t released = 0, fences_ns = timeout_ns ? DEVICE_FOREVER : 0;
    for (struct allocator *other = a->domain->first; other && released < bytes;
         other = other->next) {
        if (other == a && !a->life.forgotten)
            released += release_idle(a, bytes - released, timeout_ns);
        else if (other != a && other->stats == a->stats)
            released += release_of(other, bytes - released, fences_ns, timeout_ns);
    }
    return released;
}

/* Nothing was requested or freed since the last call: caches are emptied, and all that is idle may
 * go. Returns 0 if the last call left nothing to do. */
static int begin_rest(struct allocator *a)
{
    if (a->release.rested)
        return 0;
    fence_flush_deferred(a, 0);
    thread_caches_empty(a);
    fence_poll(a, 1);
    return !a->life.forgotten;
}

/* Is it time to give back what a program at work has not needed? A program whose steps take longer
 * than a look needs again what it did not need for a while. Memory that it made anew soon after some
 * went back shows that: from then on memory must be idle for twice as many looks. */
static int is_look_at_work(struct allocator *a)
{
    struct releases *r = &a->release;
    int is_soon = r->since_return && r->since_return++ < policy.idle_looks;
    if (is_soon && stats_get(a->stats, COUNTER_num_device_alloc) != r->made) {
        r->patience =
            r->patience < policy.idle_looks / 2 ? r->patience * 2 + !r->patience * 2 : r->patience;
        r->since_return = 0;
    }
    if (++r->looks < r->patience)
        return 0;
    r->looks = 0;
    return 1;
}

uint64_t release_unused(struct allocator *a)
{
    struct releases *r = &a->release;
    uint64_t uses = a->mallocs + a->frees + thread_caches_uses(a), seen = r->idle_seen;
    uint64_t mapped = UINT64_MAX, released = 0;
    int rests = uses == r->uses;
    r->uses = uses;
    r->rested &= rests;
    if (a->life.error || a->life.forgotten || a->fences.no_events ||
        (rests ? !begin_rest(a) : !is_look_at_work(a)))
        return 0;
    r->idle_seen = r->idle_clock;
    if (rests)
        seen = r->idle_clock;
    else
        mapped = arena_unused(a);
    if (mapped && a->arena)
        released = arena_release(a, a->arena, mapped, policy.moment_wait_ns);
    const struct segment *oldest = a->life.forgotten ? NULL : segment_oldest_idle(a);
    if (oldest && oldest->idle_since <= seen && fence_is_idle(a, policy.moment_wait_ns))
        released += segment_release_oldest(a, UINT64_MAX, seen);
    if (!a->life.forgotten && rests)
        r->rested = !a->fences.pending && !arena_unused(a) && !segment_oldest_idle(a);
    if (released && !rests) {
        r->made = stats_get(a->stats, COUNTER_num_device_alloc);
        r->since_return = 1;
    }
    stats_count(a->stats, COUNTER_idle_returned_bytes, released);
    return released;
}

static struct segment *pinned_idle(const struct allocator *a)
{
    for (int stat = 0; stat < STAT_POOLS; stat++) {
        struct segment *oldest = a->idle[stat].oldest;
        if (oldest && oldest->pool == POOL_PINNED)
            return oldest;
    }
    return NULL;
}

/* Before anything grows: gives back what serves no request, if neither this thread nor the driver
 * has to wait. */
static void release_pinned(struct allocator *a)
{
    struct segment *segment;
    uint64_t retired = arena_retired(a);
    if (retired)
        arena_release(a, a->arena, retired, 0);
    if (a->life.forgotten || !pinned_idle(a) || fence_is_idle(a, 0) != 1)
        return;
    while (!a->life.forgotten && (segment = pinned_idle(a)) && !segment_release(segment))
        ;
}

/* PyTorch's rule (garbage_collect_cached_blocks). While more than the threshold is reserved, gives
 * back whole large segments that have been idle for longer than the average idle one. The oldest
 * one always has. Idle chunks go too, unless the request is about to be made of them. */
void release_beyond_threshold(struct allocator *a, uint64_t size)
{
    double threshold = a->domain->options.garbage_collection_threshold;
    const struct idle_list *large = &a->idle[LARGE_POOL];
    if (!a->life.forgotten)
        release_pinned(a);
    if (a->life.forgotten)
        return;
    if (threshold <= 0 || a->limit == UINT64_MAX)
        return;
    uint64_t keep = (uint64_t)((double)a->limit * threshold);
    uint64_t reserved = stats_current_all(a->stats, STAT_reserved_bytes);
    if (reserved + size <= keep)
        return;
    if (a->arena && reserved > keep && !arena_serves(a, size))
        arena_release(a, a->arena, reserved - keep, policy.idle_wait_ns);
    if (!large->oldest || !fence_is_idle(a, policy.idle_wait_ns))
        return;
    while (large->oldest && stats_current_all(a->stats, STAT_reserved_bytes) > keep)
        if (segment_release(large->oldest))
            return;
}
