/* Notes what a thread does in its own cache, without the lock. It notes events in a row of its own
 * (stats/events/events.h), and counts at call sites (stats/events/sites.h). What is to be noted is
 * known at compile time, so that it costs nothing where nothing is recorded. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_RECORD_ALONE_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_RECORD_ALONE_H

#include "allocator/base/asked_site.h"
#include "allocator/thread_cache/thread_cache.h"

enum record { RECORD_NOTHING, RECORD_EVENTS, RECORD_SITES }; /* SITES: perhaps events too */

static inline enum record record_of(const struct thread_cache *cache)
{
    return cache->sites ? RECORD_SITES : cache->noted ? RECORD_EVENTS : RECORD_NOTHING;
}

static inline int record_notes(const struct thread_cache *cache, enum record what)
{
    return what == RECORD_EVENTS || (what == RECORD_SITES && cache->noted);
}

static inline __attribute__((always_inline)) int record_has_room(const struct thread_cache *cache,
                                                                 enum record what)
{
    return !record_notes(cache, what) || events_row_has_room(cache->noted);
}

/* Notes an allocation or a free before any other thread can have the block: the block leaves the
 * cache only after its thread has left. */
static inline __attribute__((always_inline)) void record_alone(struct thread_cache *cache,
                                                               struct block *block,
                                                               enum event_action action,
                                                               enum record what)
{
    int is_new = action == EVENT_alloc;
    if (what == RECORD_SITES && is_new)
        block->site = (uint16_t)domain_asked_where();
    if (what == RECORD_SITES)
        sites_count(cache->sites, block->site, block->requested, is_new ? 1 : -1);
    if (!record_notes(cache, what))
        return;
    block->noted_by = cache->mark;
    events_note(cache->noted,
                event_who(cache->thread, action, cache->allocator->ordinal,
                          what == RECORD_SITES ? block->site : 0),
                atomic_load_explicit(&block->claim, memory_order_relaxed) / CLAIM_KINDS *
                    CLAIM_KINDS,
                block_small_size(block), block->requested);
}

#endif
