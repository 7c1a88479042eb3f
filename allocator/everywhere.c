/* Points: an event in each context (everywhere.h).
 *
 * A context that has ended, or is broken for good, has no work left. So its part of a point has
 * passed. A context that may be about to end is not called into: what needs it is done later. */
#include "allocator/everywhere.h"

#include <stddef.h>

#include "allocator/base/policy.h"
#include "allocator/reuse/context_event.h"
#include "allocator/reuse/lane.h"
#include "allocator/reuse/look.h"
#include "allocator/state/enter.h"

static void clear(struct point *point)
{
    for (; point; point = point->next)
        if (point->fence) {
            fence_drop(point->allocator, point->fence);
            point->fence = NULL;
        }
}

/* Returns a part of the point without an event, or NULL without host memory. */
static struct point *unused_part(struct domain *domain, struct point *point)
{
    while (point->fence && point->next)
        point = point->next;
    if (!point->fence)
        return point;
    return point->next = slab_take(&domain->points);
}

/* Is this the driver's code for a context that never recovers? The lock is held, and dropped. */
static int is_lasting(struct allocator *a, int code)
{
    allocator_call(a);
    int lasting = code > 0 && a->ops->failed(a->device, code);
    allocator_return(a);
    return lasting;
}

/* Adds the part of one context. Returns a code as everywhere_record does. */
static int record_in(struct allocator *a, uint64_t own, struct point *point)
{
    int code = 0;
    if (a->life.forgotten || (a->life.error && a->context != own))
        return 0;
    stats_begin(a->stats);
    if (allocator_visit_soon(a)) {
        struct fence *fence = fence_record_alone(a, &code);
        struct point *part = fence ? unused_part(a->domain, point) : NULL;
        if (part) {
            part->allocator = a;
            part->fence = fence;
        } else if (fence) {
            fence_drop(a, fence);
            code = DEVICE_DEFERRED;
        } else if (a->life.forgotten || (code > 0 && a->context != own && is_lasting(a, code))) {
            code = 0;
        }
        allocator_visit_over(a);
    } else if (!a->life.forgotten) {
        code = DEVICE_DEFERRED;
    }
    stats_end(a->stats);
    return code;
}

int everywhere_record(struct domain *domain, uint64_t own, void **handle)
{
    int code = 0;
    domain_lock(domain);
    struct point *point = *handle ? *handle : slab_take(&domain->points);
    *handle = point;
    clear(point);
    for (struct allocator *a = point ? domain->first : NULL; a && !code; a = a->next)
        code = record_in(a, own, point); /* allocators are never unmapped: one leads on */
    domain_unlock(domain);
    return point ? code : DEVICE_DEFERRED;
}

/* The part of a wait for `timeout_ns`, of which `spent_ns` have passed, that is spent on a
 * context. */
static uint64_t patience(int is_own, uint64_t timeout_ns, uint64_t spent_ns)
{
    if (timeout_ns == DEVICE_FOREVER && is_own)
        return DEVICE_FOREVER;
    uint64_t limit = timeout_ns == DEVICE_FOREVER ? policy.idle_wait_ns : timeout_ns;
    return spent_ns < limit ? limit - spent_ns : 0;
}

/* Has one part passed? The own context's end waits for `calls`; a visit would make it wait for
 * longer than for a fence of its own. */
static int wait_in(const struct point *part, uint64_t own, uint64_t timeout_ns)
{
    struct allocator *a = part->allocator;
    struct fence *fence = part->fence;
    int is_own = a->context == own, visit = 0;
    if (!fence || a->life.forgotten || (a->life.error && !is_own))
        return 0;
    if (!is_own && !(visit = allocator_visit(a)))
        return DEVICE_NOT_READY;
    stats_begin(a->stats);
    fence->users++;
    a->crowd.waiting += timeout_ns != 0;
    allocator_call(a);
    int code = timeout_ns ? a->ops->fence_wait(a->device, fence->event, timeout_ns)
                          : a->ops->fence_query(a->device, fence->event);
    int lasting = code > 0 && a->ops->failed(a->device, code);
    allocator_return(a);
    if (lasting)
        a->life.error = code;
    a->crowd.waiting -= timeout_ns != 0;
    fence->users--;
    stats_end(a->stats);
    if (visit)
        allocator_visit_over(a);
    return (lasting && !is_own) || a->life.forgotten ? 0 : code;
}

int everywhere_wait(struct domain *domain, uint64_t own, void *point, uint64_t timeout_ns)
{
    int code = 0;
    domain_lock(domain);
    const struct allocator *clock = domain->first;
    uint64_t begin = clock && timeout_ns ? clock->ops->now_ns() : 0;
    for (const struct point *part = point; part && !code; part = part->next)
        if (part->fence) {
            uint64_t spent = timeout_ns ? part->allocator->ops->now_ns() - begin : 0;
            code = wait_in(part, own, patience(part->allocator->context == own, timeout_ns, spent));
        }
    domain_unlock(domain);
    return code;
}

/* Waits for all work of another context, with a limit where the driver has context events. */
static int synchronize_in(struct allocator *a)
{
    int code;
    if (a->life.forgotten || a->life.error)
        return 0;
    if (!allocator_visit_soon(a))
        return a->life.forgotten ? 0 : DEVICE_DEFERRED;
    struct fence *fence = fence_record_alone(a, &code);
    if (fence) {
        code = fence_has_passed(a, fence, policy.idle_wait_ns) ? 0 : DEVICE_DEFERRED;
        fence_drop(a, fence);
    } else if (code == DEVICE_UNSUPPORTED) {
        code = fence_synchronize(a);
    }
    if (code > 0 && is_lasting(a, code))
        code = 0;
    allocator_visit_over(a);
    return a->life.forgotten || !code ? 0 : DEVICE_DEFERRED;
}

/* The own context first: its error is the answer. */
int everywhere_synchronize(struct domain *domain, uint64_t own)
{
    int code = 0;
    domain_lock(domain);
    for (int others = 0; others < 2; others++)
        for (struct allocator *a = domain->first; a && !code; a = a->next) {
            if ((a->context != own) != others)
                continue;
            stats_begin(a->stats);
            code = others ? synchronize_in(a) : a->life.forgotten ? 0 : fence_synchronize(a);
            stats_end(a->stats);
        }
    domain_unlock(domain);
    return code;
}

/* Waits as a free of the context's device memory would. */
static int settle_in(struct allocator *a)
{
    int code = 0;
    stats_begin(a->stats);
    look_at_free(a);
    if (!a->life.forgotten && allocator_owes_host(a))
        code = fence_wait_for_host_work(a);
    allocator_note_slow(a);
    stats_end(a->stats);
    return code;
}

int everywhere_settle(struct domain *domain, uint64_t own, int *idle)
{
    int code = 0;
    look_if_watched(domain);
    domain_lock(domain);
    for (struct allocator *a = domain->first; a; a = a->next)
        if ((!own || a->context == own) && !a->life.forgotten) {
            int error = settle_in(a);
            code = code ? code : error;
        }
    *idle = lane_is_idle(domain);
    domain_unlock(domain);
    return code;
}
