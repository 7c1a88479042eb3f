/* Records what happens to blocks and segments, as events (stats/events/events.h) and at call sites
 * (stats/events/sites.h), if domain_record asked for either. The lock is held. */
#ifndef CACHALOT_ALLOCATOR_STATE_RECORD_H
#define CACHALOT_ALLOCATOR_STATE_RECORD_H

#include "allocator/base/asked_site.h"
#include "allocator/state/domain.h"
#include "stats/os/direct.h"

/* An action on a block; record_block checks first whether it is to be recorded. A block with a mark
 * has its call site counted. */
void record_block_event(const struct block *block, enum event_action action);

static inline void record_block(struct block *block, enum event_action action)
{
    if (action == EVENT_alloc)
        block->site = (uint16_t)domain_asked_where();
    if (__builtin_expect(block->segment->allocator->domain->events || block->site, 0))
        record_block_event(block, action);
}

/* segment: an action on a segment. chunk: one on a handle of mapped memory, at `address` (0:
 * unknown). wait: a wait of `ns` for a fence. oom: a request of `bytes` bytes that was out of
 * memory. */
void record_segment(const struct segment *segment, enum event_action action);
DIRECT void record_chunk(const struct allocator *allocator, enum event_action action,
                         uint64_t address, uint64_t bytes);
void record_wait(const struct allocator *allocator, uint64_t ns);
void record_ask(const struct allocator *allocator, uint64_t bytes, uint64_t ns);
void record_oom(const struct allocator *allocator, uint64_t bytes);

#endif
