/* Notes what a thread does in its own cache, without the lock, in a row of its own
 * (stats/events/events.h). The compiler knows what to note, so a thread pays nothing
 * where nothing is recorded. Requests whose call site is looked at take the lock. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_RECORD_ALONE_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_RECORD_ALONE_H

#include "allocator/thread_cache/thread_cache.h"

enum record { RECORD_NOTHING, RECORD_EVENTS };

static inline enum record record_of(const struct thread_cache *cache)
{
    return cache->noted ? RECORD_EVENTS : RECORD_NOTHING;
}

static inline __attribute__((always_inline)) int record_has_room(const struct thread_cache *cache,
                                                                 enum record what)
{
    return what == RECORD_NOTHING || events_row_has_room(cache->noted);
}

/* Notes an allocation or a free before any other thread can have the block: the block leaves the
 * cache only after its thread has left. */
static inline __attribute__((always_inline)) void record_alone(struct thread_cache *cache,
                                                               struct block *block,
                                                               enum event_action action,
                                                               enum record what)
{
    if (what == RECORD_NOTHING)
        return;
    block->noted_by = cache->mark;
    events_note(cache->noted, event_who(cache->thread, action, cache->allocator->ordinal, 0),
                atomic_load_explicit(&block->claim, memory_order_relaxed) / CLAIM_KINDS *
                    CLAIM_KINDS,
                block_small_size(block), block->requested);
}

#endif
