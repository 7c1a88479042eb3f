#include "allocator/record.h"

void record_block_event(const struct block *block, enum event_action action)
{
    const struct allocator *a = block->segment->allocator;
    events_add(a->domain->events, action, a->ordinal, block_address(block), block_size(block),
               block->requested, 0);
}

void record_segment(const struct segment *segment, enum event_action action)
{
    const struct allocator *a = segment->allocator;
    if (a->domain->events)
        events_add(a->domain->events, action, a->ordinal, segment->node.minor, segment->size, 0, 0);
}

void record_wait(const struct allocator *a, uint64_t ns)
{
    if (a->domain->events)
        events_add(a->domain->events, EVENT_fence_wait, a->ordinal, 0, 0, ns, 0);
}

void record_oom(const struct allocator *a, uint64_t bytes)
{
    if (a->domain->events)
        events_add(a->domain->events, EVENT_oom, a->ordinal, 0, bytes, bytes, 0);
}
