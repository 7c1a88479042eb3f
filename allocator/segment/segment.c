/* Segments: ranges from the driver. When they are made, and when they are given back.
 *
 * The driver's free waits for all work of the context. In the program that wait belongs to its
 * cudaFree; in a malloc it would be ours, and could hang a program whose running kernel waits for
 * the host. So a segment is given back only when the context was just seen idle (fence_is_idle,
 * with a limit on the wait). */
#include <assert.h>
#include <stddef.h>

#include "allocator/pool/pool.h"
#include "allocator/pool/segment_books.h"
#include "allocator/reuse/fence.h"
#include "allocator/segment/segment.h"
#include "allocator/state/enter.h"

int segment_obtain(struct allocator *a, enum pool pool, enum stat_pool stat, uint64_t bytes,
                   struct block **block)
{
    uint64_t address = 0;
    a->growth.bytes += bytes;
    allocator_call(a);
    int code = a->ops->segment_alloc(a->device, bytes, &address);
    allocator_return(a);
    a->growth.bytes -= bytes;
    if (code)
        return code;
    if (a->life.forgotten)
        return ALLOCATOR_PASS; /* the context went while we asked, and the memory with it */

    struct segment *segment = segment_new(a, pool, stat, address, bytes);
    if (!segment) {
        allocator_call(a);
        a->ops->segment_free(a->device, address);
        allocator_return(a);
        return ALLOCATOR_PASS; /* no host memory for the books: the driver's own */
    }
    segment_link(segment);
    stats_count(a->stats, COUNTER_num_device_alloc, 1);
    *block = segment->first;
    return 0;
}

static void segment_leave_books(struct segment *segment)
{
    assert(segment->idle);
    pool_remove(segment->allocator, segment->first);
    pool_unlist(segment->allocator, segment->first); /* the address may be another's at once */
    segment_unlink(segment);
}

static void segment_end(struct segment *segment)
{
    struct allocator *a = segment->allocator;
    pool_forget(a, segment->first);
    slab_give(&a->domain->segment_slab, segment);
    stats_count(a->stats, COUNTER_num_device_free, 1);
}

/* Forgets one idle segment: whoever calls has the driver free it. */
void segment_hand_over(struct segment *segment)
{
    segment_leave_books(segment);
    segment_end(segment);
}

/* Gives one idle segment back; the lock is dropped meanwhile. What the driver does not take is
 * still ours. */
int segment_release(struct segment *segment)
{
    struct allocator *a = segment->allocator;
    segment_leave_books(segment);
    allocator_call(a);
    int code = a->ops->segment_free(a->device, segment->node.minor);
    allocator_return(a);
    if (code && !a->life.forgotten) {
        segment_link(segment);
        pool_insert(a, segment->first);
    } else {
        segment_end(segment);
    }
    return code;
}

/* Segments that became idle up to `clock`, the oldest first, at least `bytes` if there is so much.
 */
uint64_t segment_release_oldest(struct allocator *a, uint64_t bytes, uint64_t clock)
{
    uint64_t released = 0;
    for (struct segment *segment;
         released < bytes && (segment = segment_oldest_idle(a)) && segment->idle_since <= clock;) {
        uint64_t size = segment->size;
        if (segment_release(segment))
            break;
        released += size;
    }
    return released;
}

/* Not what becomes idle meanwhile: others may take and free as fast as the driver does. */
uint64_t segment_release_whole(struct allocator *a, uint64_t bytes, uint64_t timeout_ns)
{
    return segment_oldest_idle(a) && fence_is_idle(a, timeout_ns)
               ? segment_release_oldest(a, bytes, a->release.idle_clock)
               : 0;
}
