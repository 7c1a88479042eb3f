#include "allocator/state/record.h"

#include "allocator/base/asked_site.h"

void record_block_event(struct block *block, enum event_action action)
{
    const struct allocator *a = block->segment->allocator;
    if (action == EVENT_alloc)
        block->site = (uint16_t)domain_asked_where();
    if (a->domain->sites && action != EVENT_free_completed)
        sites_count(a->domain->sites, block->site, block_requested(block),
                    action == EVENT_alloc ? 1 : -1);
    if (a->domain->events)
        events_add(a->domain->events, action, a->ordinal, block_address(block), block_size(block),
                   block_requested(block), block->site);
}

void record_segment(const struct segment *segment, enum event_action action)
{
    const struct allocator *a = segment->allocator;
    if (a->domain->events)
        events_add(a->domain->events, action, a->ordinal, segment->node.minor, segment->size, 0, 0);
}

DIRECT void record_chunk(const struct allocator *a, enum event_action action, uint64_t address,
                         uint64_t bytes)
{
    if (a->domain->events)
        events_add(a->domain->events, action, a->ordinal, address, bytes, 0, 0);
}

void record_wait(const struct allocator *a, uint64_t ns)
{
    if (a->domain->events)
        events_add(a->domain->events, EVENT_fence_wait, a->ordinal, 0, 0, ns, 0);
}

void record_ask(const struct allocator *a, uint64_t bytes, uint64_t ns)
{
    if (a->domain->events)
        events_add(a->domain->events, EVENT_ask, a->ordinal, 0, bytes, ns, 0);
}

void record_oom(const struct allocator *a, uint64_t bytes)
{
    if (a->domain->events)
        events_add(a->domain->events, EVENT_oom, a->ordinal, 0, bytes, bytes, domain_asked_where());
}
