/* The books of segments: which exist, which are idle, and their statistics. */
#include "allocator/pool/segment_books.h"

#include "allocator/pool/arena.h"
#include "allocator/state/record.h"

/* A pinned segment serves no request, so it goes to the front, as if it had been idle for ever. */
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
    segment->idle_since = ++segment->allocator->release.idle_clock;
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
    struct treap_node *node = treap_at_most(&domain->segments, 0, address);
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
    treap_insert(&a->domain->segments, &segment->node);
}

void segment_link(struct segment *segment)
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

void segment_unlink(struct segment *segment)
{
    struct allocator *a = segment->allocator;
    record_segment(segment, EVENT_segment_free);
    treap_remove(&a->domain->segments, &segment->node);
    *(segment->previous ? &segment->previous->next : &a->segments) = segment->next;
    if (segment->next)
        segment->next->previous = segment->previous;
    const struct arena_part *part = segment->arena ? &segment->arena->part[segment->stat] : NULL;
    uint64_t bytes = part ? part->chunks * CHUNK_BYTES : segment->size;
    stats_subtract(a->stats, STAT_segment, segment->stat, part ? part->handles : 1);
    stats_subtract(a->stats, STAT_reserved_bytes, segment->stat, bytes);
}

struct segment *segment_oldest_idle(const struct allocator *a)
{
    struct segment *small = a->idle[SMALL_POOL].oldest, *large = a->idle[LARGE_POOL].oldest;
    return !large || (small && small->idle_since < large->idle_since) ? small : large;
}
