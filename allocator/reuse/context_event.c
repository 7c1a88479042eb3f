/* Events of a whole context that hold no blocks: the marks of lanes, and the marks of work that the
 * host may see. */
#include <stddef.h>

#include "allocator/reuse/context_event.h"
#include "allocator/base/policy.h"
#include "allocator/state/enter.h"

struct fence *fence_make(struct allocator *a)
{
    struct fence *fence = a->fences.spare;
    if (fence)
        a->fences.spare = fence->next;
    else if (!(fence = slab_take(&a->domain->fences)))
        return NULL;
    *fence = (struct fence){.event = fence->event,
                            .owner = a->ops->thread_id(),
                            .covers = a->fences.number,
                            .next = a->fences.recording,
                            .state = FENCE_RECORDING};
    if (a->fences.recording)
        a->fences.recording->previous = fence;
    a->fences.recording = fence;
    return fence;
}

void fence_unlink_recording(struct allocator *a, struct fence *fence)
{
    *(fence->previous ? &fence->previous->next : &a->fences.recording) = fence->next;
    if (fence->next)
        fence->next->previous = fence->previous;
}

void fence_drop(struct allocator *a, struct fence *fence)
{
    fence->state = FENCE_GONE;
    fence->blocks = (struct block_list){0};
    if (fence->users)
        return;
    if (a->life.forgotten) {
        slab_give(&a->domain->fences, fence);
        return;
    }
    fence->next = a->fences.spare;
    a->fences.spare = fence;
}

int fence_synchronize(struct allocator *a)
{
    int last = a->fences.no_events; /* nothing is freed on a lane from then on */
    allocator_call(a);
    int code = a->ops->synchronize(a->device);
    if (code > 0 && !a->ops->failed(a->device, code))
        code = DEVICE_DEFERRED;
    allocator_return(a);
    a->fences.lanes_over |= last && code == 0;
    return code;
}

struct fence *fence_record_alone(struct allocator *a, int *code)
{
    struct fence *fence = a->fences.no_events ? NULL : fence_make(a);
    *code = DEVICE_UNSUPPORTED;
    if (!fence)
        return NULL;
    void *event = fence->event;
    allocator_call(a);
    *code = a->ops->fence_record(a->device, &event);
    allocator_return(a);
    fence->event = event;
    if (fence->state == FENCE_RECORDING) {
        fence_unlink_recording(a, fence);
        fence->state = FENCE_PENDING;
        if (*code == 0)
            return fence;
    }
    fence_drop(a, fence);
    return NULL;
}

int fence_has_passed(struct allocator *a, struct fence *fence, uint64_t timeout_ns)
{
    fence->users++;
    allocator_call(a);
    int code = a->ops->fence_query(a->device, fence->event);
    if (code == DEVICE_NOT_READY && timeout_ns)
        code = a->ops->fence_wait(a->device, fence->event, timeout_ns);
    allocator_return(a);
    fence->users--;
    return code == 0;
}

struct fence *fence_mark(struct allocator *a)
{
    int code, tries = 0;
    struct fence *fence = fence_record_alone(a, &code);
    while (!fence && !a->life.forgotten && fence_synchronize(a) == DEVICE_DEFERRED &&
           ++tries < policy.mark_tries)
        ;
    return fence;
}

/* Replaces the mark of work that the host may see by a newer one. */
void fence_note_host_work(struct allocator *a)
{
    int code;
    uint64_t before = a->host_work.marked;
    struct fence *fence = fence_record_alone(a, &code);
    /* Of two marks recorded at the same time, neither is known to be the newer one. */
    int newest = fence && a->host_work.marked == before;
    if (!a->life.forgotten && !newest)
        a->host_work.unmarked++;
    if (a->life.forgotten || !newest) {
        if (fence)
            fence_drop(a, fence);
        return;
    }
    if (a->host_work.mark)
        fence_drop(a, a->host_work.mark); /* the newer one covers it */
    a->host_work.mark = fence;
    a->host_work.marked++;
}

int fence_wait_for_host_work(struct allocator *a)
{
    int code = 0;
    struct fence *fence = a->host_work.mark;
    uint64_t unmarked = a->host_work.unmarked;
    if (a->host_work.settled != unmarked || a->host_work.unseen) {
        code = fence_synchronize(a);
        if (code >= 0 && a->host_work.settled < unmarked) /* the wait does not cover later work */
            a->host_work.settled = unmarked;
    } else if (fence) {
        fence->users++;
        allocator_call(a);
        code = a->ops->fence_query(a->device, fence->event);
        if (code == DEVICE_NOT_READY)
            code = a->ops->fence_wait(a->device, fence->event, DEVICE_FOREVER);
        allocator_return(a);
        fence->users--;
        if (a->host_work.mark == fence && fence->state != FENCE_GONE)
            a->host_work.mark = NULL;
        fence_drop(a, fence);
        if (code > 0) /* our own call failed, or earlier work did */
            code = fence_synchronize(a);
    }
    return code > 0 ? code : 0;
}
