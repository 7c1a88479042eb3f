/* When may a freed block be handed out again? (R0)
 *
 * A program frees a buffer right after it launches the work that uses it, on any stream. The next
 * owner may use that memory at once, on any other stream. CUDA permits this because cudaFree waits
 * for all work of the context. So a block freed at time t is reusable when all work submitted to
 * its context before t has finished.
 *
 * A fence says when that is. A fence is an event of the whole context, and stands for a batch of
 * freed blocks. The free closes the batch under the lock, and only then records the event (seal,
 * then record). It records the event before it returns, so before the program can submit more
 * work.
 *
 * Never wait for the future:
 *
 * 1. A thread may wait without limit for the fence of its own free. CUDA's free would have waited
 *    for the same work.
 * 2. A wait for the fence of another thread has a limit, because that fence may stand for work that
 *    needs the waiting thread. Example: A launches a kernel that spins on a flag, B frees, A
 *    allocates, A sets the flag.
 * 3. A wait for a fence recorded later than its frees (after captures) has a limit too. So has a
 *    wait for the fence of a free that natively does not wait (cuMemFreeAsync).
 * 4. Within a free, a thread may wait without limit for all fences recorded before its own,
 *    whichever thread freed (fence_wait.c). CUDA's free waits for the same work.
 *
 * Lanes (R1, lane.c) come first: a block freed on a lane is reusable at once. */
#include <assert.h>
#include <stddef.h>

#include "allocator/reuse/fence.h"
#include "allocator/base/policy.h"
#include "allocator/reuse/lane.h"
#include "allocator/pool/reusable.h"
#include "allocator/state/record.h"
#include "allocator/state/enter.h"

/* Drops a fence. If it is still the candidate of rule 3 in lane.c, it leads back to no lane. */
static void drop(struct allocator *a, struct fence *fence)
{
    lane_fence_ended(a, fence, 0);
    fence_drop(a, fence);
}

static void blocks_become_reusable(struct block_list blocks, enum counter_kind rule)
{
    for (struct block *block = blocks.first, *next; block; block = next) {
        next = block->link;
        stats_count(block->segment->allocator->stats, rule, 1);
        record_block(block, EVENT_free_completed);
        block_becomes_reusable(block);
    }
}

/* Retires all fences up to `number`, which have passed. */
static void retire_up_to(struct allocator *a, uint64_t number)
{
    for (struct fence *fence; (fence = a->fences.pending) && fence->number <= number;) {
        a->fences.pending = fence->next;
        if (!a->fences.pending)
            a->fences.last = NULL;
        struct block_list blocks = fence->blocks;
        lane_fence_ended(a, fence, 1);
        drop(a, fence);
        blocks_become_reusable(blocks, COUNTER_num_fence_frees);
    }
}

static void retire(struct allocator *a, struct fence *fence)
{
    uint64_t number = fence->number, covers = fence->covers;
    retire_up_to(a, covers);
    if (fence == a->fences.pending) {
        retire_up_to(a, number);
    } else if (fence->state == FENCE_PENDING) {
        /* Fences recorded at the same time stand before it: it stays in line, empty. */
        struct block_list blocks = fence->blocks;
        fence->blocks = (struct block_list){0};
        blocks_become_reusable(blocks, COUNTER_num_fence_frees);
    }
}

/* Asks the device about a pending fence, and waits at most `timeout` ns. Returns 0 when the fence
 * has passed and its blocks are reusable, else a condition or an error. */
static int ask(struct allocator *a, struct fence *fence, uint64_t timeout)
{
    fence->users++;
    a->crowd.waiting += timeout != 0;
    allocator_call(a);
    int code = timeout ? a->ops->fence_wait(a->device, fence->event, timeout)
                       : a->ops->fence_query(a->device, fence->event);
    int lasting = code > 0 && a->ops->failed(a->device, code);
    allocator_return(a);
    if (lasting)
        a->life.error = code;
    a->crowd.waiting -= timeout != 0;
    fence->users--;
    if (fence->state == FENCE_GONE) {
        drop(a, fence);
        return 0;
    }
    if (code == 0)
        retire(a, fence);
    return code;
}

void fence_poll(struct allocator *a, int needed)
{
    if (!a->fences.pending || (!needed && a->mallocs < a->fences.poll_after))
        return;
    if (ask(a, a->fences.pending, 0)) {
        a->fences.poll_after = a->mallocs + policy.poll_again;
        return;
    }
    /* Often all fences have passed: then one query of the last fence settles all. */
    if (a->fences.pending && a->fences.pending != a->fences.last && ask(a, a->fences.last, 0) == 0)
        return;
    while (a->fences.pending && ask(a, a->fences.pending, 0) == 0)
        ;
}

/* Makes a recorded fence pending. */
static void fence_recorded(struct allocator *a, struct fence *fence)
{
    fence_unlink_recording(a, fence);
    fence->state = FENCE_PENDING;
    fence->number = ++a->fences.number;
    fence->recorded_ns = a->ops->now_ns();
    fence_note_turn(a, fence->owner);
    fence->next = NULL;
    *(a->fences.last ? &a->fences.last->next : &a->fences.pending) = fence;
    a->fences.last = fence;
    stats_count(a->stats, COUNTER_num_fences, 1);
}

/* Moves all of `from` to the end of `to`. */
static void append(struct block_list *to, struct block_list *from)
{
    if (!from->first)
        return;
    *(to->first ? &to->last->link : &to->first) = from->first;
    to->last = from->last;
    *from = (struct block_list){0};
}

/* Settles a sealed fence as CUDA's free does: by a wait for the context. Returns an error of
 * earlier work, as CUDA's free does. */
static int settle_by_waiting(struct allocator *a, struct fence *fence)
{
    int code = fence_synchronize(a);
    if (fence->state == FENCE_GONE) {
        drop(a, fence);
        return code > 0 ? code : 0;
    }
    fence_unlink_recording(a, fence);
    if (code == DEVICE_DEFERRED)
        append(&a->fences.deferred, &fence->blocks);
    struct block_list blocks = fence->blocks;
    if (code == 0)
        lane_fence_ended(a, fence, 1);
    drop(a, fence);
    if (code == 0)
        blocks_become_reusable(blocks, COUNTER_num_wait_frees);
    if (code > 0)
        a->life.error = code; /* the blocks of this fence are never reusable */
    return code > 0 ? code : 0;
}

/* Records a sealed fence. Records it again if the capture that forbade it has ended meanwhile: the
 * end of that capture found nothing to flush. */
static int record(struct allocator *a, struct fence *fence, int *lasting)
{
    uint64_t ended;
    int code;
    do {
        void *event = fence->event;
        ended = a->fences.captures_ended;
        allocator_call(a);
        code = a->ops->fence_record(a->device, &event);
        *lasting = code > 0 && fence->late && a->ops->failed(a->device, code);
        allocator_return(a);
        fence->event = event;
    } while (code == DEVICE_DEFERRED && ended != a->fences.captures_ended &&
             fence->state != FENCE_GONE);
    if (code == DEVICE_UNSUPPORTED)
        a->fences.no_events = 1;
    return code;
}

/* Makes a free wait in a crowd, where threads free faster than the device works. A request waits for
 * fences of other threads only for a limited time, so without this each miss would grow the cache.
 * The free waits for all that its thread freed before its most recent share of bytes
 * (fence_not_ahead_of). Else the running thread gets ahead, and all others wait behind its stream.
 * While much memory is pending, the free waits for every fence before its own. CUDA's free waits
 * for both. */
static int wait_in_line(struct allocator *a, const struct fence *fence)
{
    uint64_t begin = a->ops->now_ns(), before = fence->covers, mine = fence_not_ahead_of(a, fence);
    int code = 0, waits = 0;
    for (; code == 0 && a->fences.pending && a->fences.pending->number <= before &&
           (a->fences.pending->number <= mine || fence_is_fat(a));
         waits = 1)
        code = ask(a, a->fences.pending, DEVICE_FOREVER);
    if (waits)
        fence_note_wait(a, begin);
    return code > 0 && code == a->life.error ? code
                                             : 0; /* else only our call failed: it is freed */
}

/* Records a sealed fence, or waits for it, and settles its blocks. */
static int settle(struct allocator *a, struct fence *fence)
{
    /* While a thread makes room, frees wait as CUDA's do: its cuMemFree waits for all work that
     * other threads submit ahead. */
    int native = a->domain->options.free_mode == FREE_STRICT || a->domain->pressing;
    int wait = a->fences.no_events || (native && !fence->late), lasting = 0,
        code = wait ? DEVICE_UNSUPPORTED : record(a, fence, &lasting);
    if (fence->state == FENCE_GONE) { /* the context was forgotten meanwhile, with its blocks */
        drop(a, fence);
        return 0;
    }
    if (code == 0) {
        fence_recorded(a, fence);
        return a->crowd.is_on && !fence->late ? wait_in_line(a, fence) : 0;
    }
    /* Frees pile up during captures. When much is pending, they wait as CUDA's frees do. */
    int later = fence->late ? !lasting : code == DEVICE_DEFERRED && !fence_is_fat(a);
    if (later) {
        fence_unlink_recording(a, fence);
        append(&a->fences.deferred, &fence->blocks);
        drop(a, fence);
        return 0;
    }
    return settle_by_waiting(a, fence);
}

int fence_free(struct allocator *a, struct block *block, int async)
{
    struct fence *fence = fence_make(a);
    struct block_list freed = {block, block};
    block->link = NULL;
    append(&a->fences.deferred, &freed); /* blocks deferred by a capture are not younger */
    if (!fence)
        return 0; /* no host memory: the fence of the next free covers this block too */
    fence->late = async;
    append(&fence->blocks, &a->fences.deferred); /* seal: from here on nothing joins */
    lane_sealed(a, fence);
    return settle(a, fence);
}

void fence_flush_deferred(struct allocator *a, int wait)
{
    struct fence *fence;
    /* Without context events only a native free may wait: the next one takes these blocks along. */
    int strict = a->fences.no_events || a->domain->options.free_mode == FREE_STRICT;
    if (!a->fences.deferred.first || (strict && !wait) || !(fence = fence_make(a)))
        return;
    fence->late = 1;
    append(&fence->blocks, &a->fences.deferred);
    settle(a, fence);
    if (!wait || !a->fences.deferred.first || !(fence = fence_make(a)))
        return;
    /* Still capturing, and out of memory: wait as CUDA's frees of these blocks would have. */
    append(&fence->blocks, &a->fences.deferred);
    settle_by_waiting(a, fence);
}

int fence_is_idle(struct allocator *a, uint64_t timeout_ns)
{
    struct fence *fence = a->fences.no_events ? NULL : fence_make(a);
    if (!fence)
        return 2;
    void *event = fence->event;
    allocator_call(a);
    int code = a->ops->fence_record(a->device, &event);
    if (code == 0)
        code = a->ops->fence_wait(a->device, event, timeout_ns);
    allocator_return(a);
    fence->event = event;
    if (fence->state == FENCE_RECORDING) {
        fence_unlink_recording(a, fence);
        if (code == 0)
            retire_up_to(a, fence->covers);
    }
    drop(a, fence);
    return code == 0 ? 1 : code == DEVICE_NOT_READY ? 0 : 2;
}

void fence_forget_all(struct allocator *a)
{
    for (struct fence *fence = a->fences.pending, *next; fence; fence = next) {
        next = fence->next;
        drop(a, fence);
    }
    for (struct fence *fence = a->fences.recording; fence; fence = fence->next) {
        fence->state = FENCE_GONE;
        fence->blocks = (struct block_list){0};
    }
    if (a->host_work.mark)
        drop(a, a->host_work.mark);
    a->host_work.mark = NULL;
    for (struct fence *fence = a->fences.spare, *next; fence; fence = next) {
        next = fence->next;
        slab_give(&a->domain->fences, fence);
    }
    a->fences.pending = a->fences.last = a->fences.recording = a->fences.spare = NULL;
    a->fences.deferred = (struct block_list){0};
}

struct fence_wait fence_wait_begin(struct allocator *a, uint64_t budget_ns)
{
    if (!a->crowd.is_on && a->fences.pending->owner != a->ops->thread_id() && fence_is_fat(a))
        fence_crowd_begins(a);
    return (struct fence_wait){
        .begin_ns = a->ops->now_ns(), .last = a->fences.number, .budget_ns = budget_ns};
}

int fence_wait_next(struct allocator *a, const struct fence_wait *wait)
{
    uint64_t timeout;
    return a->fences.pending && a->fences.pending->number <= wait->last &&
           (timeout = fence_patience(a, a->fences.pending, a->ops->now_ns() - wait->begin_ns,
                                     wait->budget_ns)) &&
           ask(a, a->fences.pending, timeout) == 0;
}

void fence_wait_end(struct allocator *a, const struct fence_wait *wait)
{
    fence_note_wait(a, wait->begin_ns);
}

void fence_wait_all(struct allocator *a, uint64_t budget_ns)
{
    if (!a->fences.pending)
        return;
    struct fence_wait wait = fence_wait_begin(a, budget_ns);
    while (fence_wait_next(a, &wait))
        ;
    fence_wait_end(a, &wait);
}
