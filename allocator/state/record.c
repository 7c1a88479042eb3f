#include "allocator/state/record.h"

/* A request that is at the peak has raised it: then the sites are those of the peak only with this
 * block. Its peak is noted at the next change. */
static void count_at_site(const struct block *block, int live)
{
    const struct allocator *a = block->segment->allocator;
    uint64_t peak = stat_get(&a->stats->stat[STAT_allocated_bytes].peak[STAT_POOLS]);
    if (live < 0 || stats_current_all(a->stats, STAT_allocated_bytes) != peak)
        sites_note_peak(a->domain->sites, a->ordinal, peak);
    sites_count(a->domain->sites, block->site, block_requested(block), live);
}

void record_block_event(const struct block *block, enum event_action action)
{
    const struct allocator *a = block->segment->allocator;
    if (a->domain->sites && block->site && action != EVENT_free_completed)
        count_at_site(block, action == EVENT_alloc ? 1 : -1);
    if (a->domain->events)
        events_add(a->domain->events, action, a->ordinal, block_address(block), block_size(block),
                   block_requested(block), site_exact(block->site));
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
        events_add(a->domain->events, EVENT_oom, a->ordinal, 0, bytes, bytes,
                   site_exact(domain_asked_where()));
}
