/* Segments: ranges from the driver. When they are made, and when they are given back.
 *
 * The driver's free waits for all work of the context. In the program that wait belongs to its
 * cudaFree; in a malloc it would be ours, and could hang a program whose running kernel waits for
 * the host. So a segment is given back only when the context was just seen idle (fence_is_idle,
 * with a limit on the wait). */
#include <assert.h>
#include <stddef.h>

#include "allocator/pool/arena_parts.h"
#include "allocator/reuse/fence.h"
#include "allocator/pool/pool.h"
#include "allocator/state/record.h"
#include "allocator/segment/segment.h"

#define SMALL_SEGMENT (2 * MIB) /* kSmallBuffer */
#define LARGE_LEAST (10 * MIB)  /* kMinLargeAlloc: from here on a segment of its own */
#define SEGMENT_GRAIN (2 * MIB) /* kRoundLarge */

static uint64_t round_up(uint64_t bytes, uint64_t grain)
{
    return (bytes + grain - 1) / grain * grain;
}

static uint64_t segment_bytes(const struct allocator *a, enum pool pool, uint64_t size, int least)
{
    uint64_t large = a->domain->options.large_segment_bytes;
    if (pool == POOL_PINNED)
        return size;
    if (pool == POOL_SMALL)
        return SMALL_SEGMENT;
    if (least || a->as_native || pool == POOL_DEDICATED || size >= LARGE_LEAST || size > large)
        return round_up(size, SEGMENT_GRAIN);
    return large;
}

/* What is pinned serves nobody: as if it were idle since ever. */
static void pinned_becomes_idle(struct idle_list *list, struct segment *segment)
{
    segment->idle_since = 0;
    segment->idle_older = NULL;
    segment->idle_newer = list->oldest;
    *(list->oldest ? &list->oldest->idle_older : &list->newest) = segment;
    list->oldest = segment;
}

void segment_becomes_idle(struct segment *segment)
{
    struct idle_list *list = &segment->allocator->idle[segment->stat];
    segment->idle = 1;
    if (segment->pool == POOL_PINNED) {
        pinned_becomes_idle(list, segment);
        return;
    }
    segment->idle_since = ++segment->allocator->idle_clock;
    segment->idle_newer = NULL;
    segment->idle_older = list->newest;
    *(list->newest ? &list->newest->idle_newer : &list->oldest) = segment;
    list->newest = segment;
}

void segment_leaves_idle(struct segment *segment)
{
    struct idle_list *list = &segment->allocator->idle[segment->stat];
    segment->idle = 0;
    *(segment->idle_older ? &segment->idle_older->idle_newer : &list->oldest) = segment->idle_newer;
    *(segment->idle_newer ? &segment->idle_newer->idle_older : &list->newest) = segment->idle_older;
}

struct segment *segment_holding(const struct domain *domain, uint64_t address)
{
    struct tree_node *node = tree_at_most(&domain->segments, 0, address);
    struct segment *segment = (struct segment *)node;
    return segment && address - node->minor < segment->size ? segment : NULL;
}

void segment_list(struct segment *segment)
{
    struct allocator *a = segment->allocator;
    segment->previous = NULL;
    segment->next = a->segments;
    if (a->segments)
        a->segments->previous = segment;
    a->segments = segment;
    tree_insert(&a->domain->segments, &segment->node);
}

/* On the books. */
static void segment_link(struct segment *segment)
{
    struct allocator *a = segment->allocator;
    segment_list(segment);
    stats_add(a->stats, STAT_segment, segment->stat, 1);
    stats_add(a->stats, STAT_reserved_bytes, segment->stat, segment->size);
    record_segment(segment, EVENT_segment_alloc);
}

struct segment *segment_new(struct allocator *a, enum pool pool, enum stat_pool stat,
                            uint64_t address, uint64_t bytes)
{
    struct segment *segment = slab_take(&a->domain->segment_slab);
    struct block *block = slab_take(&a->domain->blocks);
    if (!segment || !block) {
        if (segment)
            slab_give(&a->domain->segment_slab, segment);
        if (block)
            slab_give(&a->domain->blocks, block);
        return NULL;
    }
    segment->node.minor = address;
    segment->size = bytes;
    segment->allocator = a;
    segment->pool = pool;
    segment->stat = stat;
    segment->first = block;
    block->node.major = bytes;
    block->node.minor = address;
    block->segment = segment;
    return segment;
}

uint64_t segment_reserved(const struct allocator *a)
{
    uint64_t bytes = stats_current_all(a->stats, STAT_reserved_bytes);
    for (const struct allocator *other = a->domain->first; other; other = other->next)
        bytes += other->stats == a->stats ? other->growing_bytes : 0;
    return bytes;
}

/* A new block of at least `size` bytes, in no pool yet and not split. GROW_LEAST: no more than is
 * needed; GROW_NATIVE: exactly that, never to be reused (option cache:off). */
int segment_grow(struct allocator *a, uint64_t size, enum growth growth, struct block **block)
{
    if (a->forgotten)
        return ALLOCATOR_PASS;
    enum pool pool = growth == GROW_NATIVE ? POOL_PINNED : pool_for(a, size);
    if (growth == GROW_SEGMENT && arena_serves(a, size)) {
        int code = arena_grow(a, size, block);
        if (code <= 0 || code == a->ops->out_of_memory)
            return code;
    }
    if (pool == POOL_MAPPED) /* the last resort, or mapping fails: just what is needed */
        pool = pool_ordinary(size), growth = GROW_LEAST;
    uint64_t bytes = segment_bytes(a, pool, size, growth == GROW_LEAST), address = 0;
    uint64_t reserved = segment_reserved(a);
    a->pressed |= stats_current_all(a->stats, STAT_active_bytes) + size > a->capacity / 3 * 2;
    if (a->limit < bytes || reserved > a->limit - bytes) {
        a->pressed = 1;
        a->taken = NULL;
        return a->ops->out_of_memory;
    }

    a->growing_bytes += bytes;
    allocator_call(a);
    int code = a->ops->segment_alloc(a->device, bytes, &address);
    allocator_return(a);
    a->growing_bytes -= bytes;
    a->pressed |= code == a->ops->out_of_memory;
    a->taken = NULL; /* what a request gets may be another thing now */
    if (code)
        return code;
    if (a->forgotten)
        return ALLOCATOR_PASS; /* the context went while we asked, and the memory with it */

    struct segment *segment =
        segment_new(a, pool, size <= MIB ? SMALL_POOL : LARGE_POOL, address, bytes);
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

/* Takes an idle or dying segment off the books. */
static void segment_unlink(struct segment *segment)
{
    struct allocator *a = segment->allocator;
    record_segment(segment, EVENT_segment_free);
    tree_remove(&a->domain->segments, &segment->node);
    *(segment->previous ? &segment->previous->next : &a->segments) = segment->next;
    if (segment->next)
        segment->next->previous = segment->previous;
    const struct arena_part *part = segment->arena ? &segment->arena->part[segment->stat] : NULL;
    uint64_t bytes = part ? part->booked : segment->size;
    stats_subtract(a->stats, STAT_segment, segment->stat, part ? part->handles : 1);
    stats_subtract(a->stats, STAT_reserved_bytes, segment->stat, bytes);
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
    if (code && !a->forgotten) {
        segment_link(segment);
        pool_insert(a, segment->first);
    } else {
        segment_end(segment);
    }
    return code;
}

static struct segment *oldest_idle(const struct allocator *a)
{
    struct segment *small = a->idle[SMALL_POOL].oldest, *large = a->idle[LARGE_POOL].oldest;
    return !large || (small && small->idle_since < large->idle_since) ? small : large;
}

/* Segments that became idle up to `clock`, the oldest first, at least `bytes` if there is so much.
 */
static uint64_t release_oldest(struct allocator *a, uint64_t bytes, uint64_t clock)
{
    uint64_t released = 0;
    for (struct segment *segment;
         released < bytes && (segment = oldest_idle(a)) && segment->idle_since <= clock;) {
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
    return oldest_idle(a) && fence_is_idle(a, timeout_ns) ? release_oldest(a, bytes, a->idle_clock)
                                                          : 0;
}

uint64_t segment_release_idle(struct allocator *a, uint64_t bytes, uint64_t timeout_ns)
{
    uint64_t released = a->arena ? arena_release(a, a->arena, bytes, timeout_ns) : 0;
    return released < bytes ? released + segment_release_whole(a, bytes - released, timeout_ns)
                            : released;
}

#define RELIEF_SHARE 10        /* the device is short of memory when less than a tenth is free */
#define RELIEF_WAIT_NS 1000000 /* no longer: another time will do */

/* So that other processes do not starve: what was idle ever since the last look, as much as the
 * device is short of. Returns bytes; nothing is asked of the driver if nothing was idle. */
uint64_t segment_release_unused(struct allocator *a)
{
    const struct segment *oldest = oldest_idle(a);
    uint64_t seen = a->idle_seen, available = 0, total = 0, released = 0;
    uint64_t mapped = arena_unused(a);
    int is_old = oldest && oldest->idle_since <= seen;
    a->idle_seen = a->idle_clock;
    if (a->error || a->forgotten || a->no_events || (!mapped && !is_old))
        return 0;
    allocator_call(a);
    int code = a->ops->memory_free(a->device, &available, &total);
    allocator_return(a);
    if (code || a->forgotten || available >= total / RELIEF_SHARE)
        return 0;
    uint64_t wanted = total / RELIEF_SHARE - available;
    if (mapped)
        released = arena_release(a, a->arena, wanted < mapped ? wanted : mapped, RELIEF_WAIT_NS);
    if (released < wanted && !a->forgotten && is_old && fence_is_idle(a, RELIEF_WAIT_NS))
        released += release_oldest(a, wanted - released, seen);
    stats_count(a->stats, COUNTER_relieved_bytes, released);
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

/* Before anything grows: what serves nobody, if that needs no wait, nor the driver one. */
static void release_pinned(struct allocator *a)
{
    struct segment *segment;
    uint64_t retired = arena_retired(a);
    if (retired)
        arena_release(a, a->arena, retired, 0);
    if (a->forgotten || !pinned_idle(a) || fence_is_idle(a, 0) != 1)
        return;
    while (!a->forgotten && (segment = pinned_idle(a)) && !segment_release(segment))
        ;
}

/* PyTorch's rule (garbage_collect_cached_blocks): as long as more than the threshold is reserved,
 * give back whole large segments that have been idle for longer than the average idle one. The
 * oldest always has been. Idle chunks go too, unless the request is about to be made of them. */
void segment_collect_garbage(struct allocator *a, uint64_t size)
{
    double threshold = a->domain->options.garbage_collection_threshold;
    const struct idle_list *large = &a->idle[LARGE_POOL];
    if (!a->forgotten)
        release_pinned(a);
    if (a->forgotten)
        return;
    if (threshold <= 0 || a->limit == UINT64_MAX)
        return;
    uint64_t keep = (uint64_t)((double)a->limit * threshold);
    uint64_t reserved = stats_current_all(a->stats, STAT_reserved_bytes);
    if (reserved + size <= keep)
        return;
    if (a->arena && reserved > keep && !arena_serves(a, size))
        arena_release(a, a->arena, reserved - keep, IDLE_WAIT_NS);
    if (!large->oldest || !fence_is_idle(a, IDLE_WAIT_NS))
        return;
    while (large->oldest && stats_current_all(a->stats, STAT_reserved_bytes) > keep)
        if (segment_release(large->oldest))
            return;
}

void segment_forget(struct segment *segment, uint64_t *held)
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
        arena_put_kit(a, segment->arena, segment->arena->kit, segment->arena->kits);
        segment->arena->kit = NULL;
        segment->arena->kits = 0;
    }
    segment_unlink(segment);
    slab_give(&a->domain->segment_slab, segment);
}

void segment_pin(struct segment *segment, struct block *live)
{
    struct allocator *a = segment->allocator;
    if (segment->arena) {
        arena_pin(live);
        return;
    }
    for (struct block *block = segment->first; block; block = block->next)
        if (block->state == BLOCK_REUSABLE)
            bins_remove(&a->pool[segment->pool], &block->node);
    segment->pool = POOL_PINNED;
    for (struct block *block = segment->first; block; block = block->next)
        if (block->state == BLOCK_REUSABLE)
            bins_insert(&a->pool[POOL_PINNED], &block->node);
        else if (block_claimed(block) == CLAIM_EASY)
            block_claim(block, CLAIM_HELD);
}
