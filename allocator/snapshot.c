/* Listing all blocks, for reports. */
#include "allocator/allocator.h"
#include "allocator/thread_cache/locked.h"
#include "stats/events/events.h"

static const uint8_t shown_as[] = {
    [BLOCK_ALLOCATED] = SNAPSHOT_ALLOCATED,
    [BLOCK_PENDING] = SNAPSHOT_PENDING,
    [BLOCK_REUSABLE] = SNAPSHOT_REUSABLE,
};

static void show(const struct block *block, uint64_t begin, uint64_t bytes,
                 void (*take)(void *, const struct snapshot_block *), void *context)
{
    const struct segment *segment = block->segment;
    enum block_state state = block_is_cached(block) ? BLOCK_REUSABLE : block->state;
    const struct snapshot_block row = {
        .address = block_address(block),
        .size_bytes = block_size(block),
        .requested_bytes = state == BLOCK_REUSABLE ? 0 : block_requested(block),
        .segment_address = begin,
        .segment_bytes = bytes,
        .device = segment->allocator->ordinal,
        .state = shown_as[state],
        .pool = (uint8_t)segment->stat,
        .mapped = segment->arena != NULL,
        .site = state == BLOCK_REUSABLE ? 0 : site_exact(block->site),
    };
    take(context, &row);
}

static int is_shown(const struct block *block)
{
    return block && block->state < BLOCK_CLAIMED;
}

/* In an arena, each run of addresses with memory below them counts as a segment. */
static void show_segment(const struct segment *segment,
                         void (*take)(void *, const struct snapshot_block *), void *context)
{
    for (const struct block *block = segment->first, *last; block; block = last->next) {
        uint64_t begin = block_address(block);
        last = block;
        while (is_shown(block) && is_shown(last->next))
            last = last->next;
        if (!is_shown(block))
            continue;
        uint64_t bytes = block_address(last) + block_size(last) - begin;
        for (;; block = block->next) {
            show(block, begin, bytes, take, context);
            if (block == last)
                break;
        }
    }
}

void domain_walk(struct domain *domain,
                 void (*take)(void *context, const struct snapshot_block *block), void *context)
{
    domain_lock(domain);
    thread_caches_stop(domain, NULL);
    if (domain->events)
        events_take(domain->events, 1); /* events up to here */
    for (struct treap_node *node = treap_at_least(&domain->segments, 0, 0); node;
         node = treap_at_least(&domain->segments, 0, node->minor + 1))
        show_segment((struct segment *)node, take, context);
    thread_caches_go_on(domain, NULL);
    domain_unlock(domain);
}
