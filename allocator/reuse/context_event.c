/* Marks: events of all work submitted to a context by now that hold no blocks. For lanes, and for
 * what the host may see. */
#include <stddef.h>

#include "allocator/reuse/fence.h"

struct fence *fence_record_alone(struct allocator *a, int *code)
{
    struct fence *fence = a->no_events ? NULL : fence_make(a);
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

#define MOST_TRIES 1000 /* errors of the driver that pass */

struct fence *fence_mark(struct allocator *a)
{
    int code, tries = 0;
    struct fence *fence = fence_record_alone(a, &code);
    while (!fence && !a->forgotten && fence_synchronize(a) == DEVICE_DEFERRED &&
           ++tries < MOST_TRIES)
        ;
    return fence;
}

/* Marks work that the host may see. */
static void note_host_work(struct allocator *a)
{
    int code;
    uint64_t before = a->host_works;
    struct fence *fence = fence_record_alone(a, &code);
    /* Of two recorded at the same time, none is known to be the newer one. */
    int newest = fence && a->host_works == before;
    if (!a->forgotten && !newest)
        a->host_work_unmarked++;
    if (a->forgotten || !newest) {
        if (fence)
            fence_drop(a, fence);
        return;
    }
    if (a->host_work)
        fence_drop(a, a->host_work); /* the newer one covers it */
    a->host_work = fence;
    a->host_works++;
}

void allocator_note_host_work(struct allocator *a)
{
    allocator_enter(a);
    if (!a->forgotten)
        note_host_work(a);
    allocator_leave(a);
}

int fence_wait_for_host_work(struct allocator *a)
{
    int code = 0;
    struct fence *fence = a->host_work;
    uint64_t unmarked = a->host_work_unmarked;
    if (a->host_work_settled != unmarked) {
        code = fence_synchronize(a);
        if (code >= 0 && a->host_work_settled < unmarked) /* what came since is not in it */
            a->host_work_settled = unmarked;
    } else if (fence) {
        fence->users++;
        allocator_call(a);
        code = a->ops->fence_query(a->device, fence->event);
        if (code == DEVICE_NOT_READY)
            code = a->ops->fence_wait(a->device, fence->event, DEVICE_FOREVER);
        allocator_return(a);
        fence->users--;
        if (a->host_work == fence && fence->state != FENCE_GONE)
            a->host_work = NULL;
        fence_drop(a, fence);
        if (code > 0) /* our own call went wrong, or earlier work did */
            code = fence_synchronize(a);
    }
    return code > 0 ? code : 0;
}
