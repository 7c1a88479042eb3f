/* Segments: ranges from the driver, when they are made and when they are given back.
 *
 * The driver's free waits for all work of the context. In cudaFree the program expects that wait.
 * In a malloc it could hang a program whose running kernel waits for the host. So a segment is
 * given back only when the context has just been seen idle (fence_is_idle, with a limit on the
 * wait). */
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
        return ALLOCATOR_PASS; /* the context has ended meanwhile, and the memory with it */

    struct segment *segment = segment_new(a, pool, stat, address, bytes);
    if (!segment) {
        allocator_call(a);
        a->ops->segment_free(a->device, address, bytes);
        allocator_return(a);
        return ALLOCATOR_PASS; /* no host memory for the books: the driver serves the request */
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
    block_unlist(segment->first); /* the address may come back at once */
    segment_unlink(segment);
}

static void segment_end(struct segment *segment)
{
    struct allocator *a = segment->allocator;
    pool_forget(a, segment->first);
    slab_give(&a->domain->segment_slab, segment);
    stats_count(a->stats, COUNTER_num_device_free, 1);
}

void segment_hand_over(struct segment *segment)
{
    const struct allocator *a = segment->allocator;
    if (a->ops->segment_left)
        a->ops->segment_left(a->device, segment->size);
    segment_leave_books(segment);
    segment_end(segment);
}

/* A segment that the driver refuses to free goes back on the books. */
int segment_release(struct segment *segment)
{
    struct allocator *a = segment->allocator;
    segment_leave_books(segment);
    a->release.bytes += segment->size;
    allocator_call(a);
    int code = a->ops->segment_free(a->device, segment->node.minor, segment->size);
    allocator_return(a);
    a->release.bytes -= segment->size;
    if (code && !a->life.forgotten) {
        segment_link(segment);
        pool_insert(a, segment->first);
    } else {
        segment_end(segment);
    }
    return code;
}

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

/* Segments that become idle meanwhile stay: other threads may take and free them as fast as the
 * driver frees. */
uint64_t segment_release_whole(struct allocator *a, uint64_t bytes, uint64_t timeout_ns)
{
    return segment_oldest_idle(a) && fence_is_idle(a, timeout_ns)
               ? segment_release_oldest(a, bytes, a->release.idle_clock)
               : 0;
}
