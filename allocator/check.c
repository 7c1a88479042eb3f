/* The invariants: all that an allocator's books say is true. */
#include "allocator/allocator.h"
#include "allocator/check.h"

#include <stddef.h>

#include "allocator/mapping/divide.h"
#include "allocator/pool/arena_fit.h"
#include "allocator/pool/pool.h"
#include "allocator/thread_cache/locked.h"

/* Do the block's neighbours lie beside it, and is it merged with them where that is possible? */
static int is_valid(const struct block *block)
{
    const struct block *next = block->next;
    if (!block_size(block) || (block->previous && block->previous->next != block) ||
        (block->state == BLOCK_ALLOCATED && block->owner != block->segment->allocator->number))
        return 0;
    if (!next)
        return block_address(block) + block_size(block) ==
               block->segment->node.minor + block->segment->size;
    return next->previous == block &&
           block_address(next) == block_address(block) + block_size(block) &&
           next->segment == block->segment &&
           !(block->state == next->state && block->pinned == next->pinned &&
             (block->state == BLOCK_REUSABLE || block->state == BLOCK_ABSENT));
}

/* One of so many changes of an arena is checked in all its slots, since an arena has as many parts
 * as slots. Odd, since arenas have two segments. */
#define CHECK_EACH 61

static int handle_lies_in(const struct arena *arena, uint32_t slot, uint64_t begin, uint64_t end)
{
    return arena_address(arena, arena_handle_at(arena, slot)) >= begin &&
           (arena->chunk[arena->slot[slot].chunk].span == 1 ||
            arena_address(arena, arena_handle_end(arena, slot)) <= end);
}

/* Is the reusable block found from its first idle slot? */
static int hole_is_noted(const struct arena *arena, const struct block *block)
{
    uint64_t end = block_address(block) + block_size(block);
    uint64_t slot = arena_slot_at(block_address(block) - arena->base + CHUNK_BYTES - 1);
    while (arena_address(arena, slot) < end && !arena->idle[slot])
        slot++;
    return arena_address(arena, slot) >= end || arena->slot[slot].hole == block;
}

/* Does the other slot of a divided chunk have exactly what is elsewhere here? */
static int is_elsewhere(const struct arena *arena, const struct block *block)
{
    uint32_t slot = (uint32_t)arena_slot_at(block_address(block) - arena->base);
    uint32_t other = arena_other_slot(arena, slot);
    const struct block *there = arena->slot[other].hole;
    if (other == slot || arena->slot[slot].hole != block || there->state != BLOCK_ELSEWHERE)
        return 0;
    uint64_t begin = block_address(block) - arena_address(arena, slot);
    uint64_t begins = block_address(there) - arena_address(arena, other);
    return begin != begins && begin + begins == (begin ? block_size(there) : block_size(block)) &&
           block_size(block) + block_size(there) == CHUNK_BYTES;
}

/* Does all of the block have memory below it, or none of it if it is absent? And is it noted as
 * idle where it should be? */
static int block_is_backed(const struct arena *arena, const struct block *block)
{
    uint64_t begin = block_address(block), end = begin + block_size(block);
    uint32_t slot = (uint32_t)arena_slot_at(begin - arena->base);
    uint32_t top = arena->part[block->segment->stat].top;
    if (block->state == BLOCK_ELSEWHERE)
        return is_elsewhere(arena, block);
    for (; slot < top && arena_address(arena, slot) < end; slot++) {
        uint64_t from = arena_address(arena, slot), to = from + CHUNK_BYTES;
        if (block->state != BLOCK_CLAIMED &&
            arena_is_present(arena, slot) != (block->state != BLOCK_ABSENT))
            return 0;
        if (from >= begin && to <= end &&
            arena->idle[slot] != (block->state == BLOCK_REUSABLE && !block->pinned &&
                                  handle_lies_in(arena, slot, begin, end)))
            return 0;
    }
    if (block->state == BLOCK_REUSABLE && !block->pinned && !hole_is_noted(arena, block))
        return 0;
    return block->state == BLOCK_ABSENT || arena_address(arena, slot) >= end;
}

/* Does the chunk lie beside the other chunks of its handle? */
static int chunk_is_joined(const struct arena *arena, uint32_t number)
{
    const struct chunk *chunk = &arena->chunk[number], *first = &arena->chunk[chunk->first];
    uint32_t place = number - chunk->first;
    return !chunk->booked || (place < chunk->span && chunk->span == first->span && first->booked &&
                              (chunk->leaving || (chunk->handle != 0) == !place) &&
                              chunk->leaving == first->leaving &&
                              chunk->owner == (first->owner ? first->owner + place : 0) &&
                              chunk->home == (first->home ? first->home + place : 0));
}

static int arena_is_valid(const struct arena *arena)
{
    uint32_t idle = 0, spare = 0, retired = 0, divided = 0;
    uint32_t chunks[STAT_POOLS] = {0}, handles[STAT_POOLS] = {0};
    for (uint32_t slot = arena_used(arena, 0); slot < arena->slots;
         slot = arena_used(arena, slot + 1)) {
        const struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
        enum presence presence = chunk->second == slot + 1  ? DIVIDED
                                 : chunk->owner != slot + 1 ? NOT_PRESENT
                                 : chunk->home == slot + 1  ? AT_HOME
                                                            : AWAY;
        divided += presence == DIVIDED;
        idle += arena->idle[slot];
        if (arena->idle[slot] && !arena_is_present(arena, slot))
            return 0;
        if (!arena->slot[slot].changing &&
            arena->joined[slot] !=
                (arena->slot[slot].chunk && chunk->first != arena->slot[slot].chunk))
            return 0;
        if (arena->present[slot] != presence)
            return 0;
    }
    for (uint32_t number = 1; number <= arena->made; number++) {
        const struct chunk *chunk = &arena->chunk[number];
        int nobodys = chunk->booked && !chunk->owner && !chunk->leaving;
        chunks[chunk->pool] += chunk->booked != 0;
        handles[chunk->pool] += chunk->booked && arena_is_first(arena, number);
        if (chunk->owner && chunk->booked && chunk->pool != arena_pool_of(arena, chunk->owner - 1))
            return 0;
        spare += nobodys && !chunk->retired;
        retired += nobodys && chunk->retired;
        if (chunk->owner && arena->slot[chunk->owner - 1].chunk != number)
            return 0;
        if (chunk->home && arena->slot[chunk->home - 1].chunk != number)
            return 0;
        if (chunk->second && arena->slot[chunk->second - 1].chunk != number)
            return 0;
        if (!chunk_is_joined(arena, number))
            return 0;
    }
    for (enum stat_pool pool = 0; pool < STAT_POOLS; pool++)
        if (chunks[pool] != arena->part[pool].chunks || handles[pool] != arena->part[pool].handles)
            return 0;
    return idle == arena->free.slots && spare == arena->free.spares &&
           retired == arena->free.retired && divided == arena->divided;
}

struct sums {
    uint64_t allocated, active, requested, reserved, reusable, inactive_split;
    int cached; /* thread caches change what other threads count */
};

/* A thread without the lock may have the block, and knows no call sites. */
static int has_lost_site(const struct block *block)
{
    int claim = block_claimed(block);
    return block->site && (claim == CLAIM_EASY || claim == CLAIM_CACHED);
}

static int is_in_pool(const struct block *block)
{
    enum pool pool = block_pool(block);
    const struct bins *bins = &block->segment->allocator->pool[pool];
    return pool == POOL_MAPPED
               ? arena_fit_is_valid(block)
               : bins_at_least(bins, block->node.major, block->node.minor) == &block->node;
}

static int add_segment(const struct segment *segment, struct sums *sums)
{
    static unsigned turn;
    int slots_too = segment->arena && turn++ % CHECK_EACH == 0;
    const struct domain *domain = segment->allocator->domain;
    if (!segment->first || segment->first->previous ||
        block_address(segment->first) != segment->node.minor)
        return 0;
    const struct arena *arena = segment->arena;
    if (slots_too && !arena_is_valid(arena))
        return 0;
    if (!arena &&
        segment->idle != (!segment->first->next && segment->first->state == BLOCK_REUSABLE))
        return 0;
    sums->reserved += arena ? arena->part[segment->stat].chunks * CHUNK_BYTES : segment->size;
    for (const struct block *block = segment->first; block; block = block->next) {
        int listed = domain_block_at(domain, block_address(block)) == block;
        int held = block->state == BLOCK_ALLOCATED;
        if (segment->pool == POOL_MAPPED && block->state != BLOCK_ELSEWHERE &&
            block_address(block) % domain->options.page_bytes)
            return 0;
        if ((slots_too && !block_is_backed(arena, block)) || !is_valid(block) ||
            listed != (atomic_load(&block->claim) != 0) ||
            held != (block_claimed(block) != CLAIM_NOBODY) || has_lost_site(block))
            return 0;
        if (block->state == BLOCK_REUSABLE) {
            if (!is_in_pool(block))
                return 0;
            sums->reusable += block_size(block);
            sums->inactive_split += arena || segment->idle ? 0 : block_size(block);
            continue;
        }
        if (block_is_cached(block)) {
            sums->reusable += block_size(block);
            sums->inactive_split += block_size(block);
            continue;
        }
        if (block == domain->last_freed.block) {
            sums->reusable += block_size(block);
            sums->inactive_split += arena                      ? 0
                                    : domain->last_freed.split ? block_size(block)
                                                               : -domain->last_freed.more;
            continue;
        }
        if (block->state >= BLOCK_CLAIMED)
            continue;
        sums->active += block_size(block);
        sums->requested += sums->cached ? 0 : block_requested(block);
        sums->allocated += held ? block_size(block) : 0;
    }
    return 1;
}

/* The sum of all rows equals each counter, over all allocators that share the numbers of a
 * device. */
int allocator_is_valid(const struct allocator *a)
{
    struct sums sums = {.cached = thread_caches_serve(a->domain, a->stats)};
    for (const struct allocator *other = a->domain->first; other; other = other->next)
        if (other->stats == a->stats)
            for (const struct segment *segment = other->segments; segment; segment = segment->next)
                if (!add_segment(segment, &sums))
                    return 0;
    if (sums.cached)
        return 1;
    return sums.allocated == stats_current_all(a->stats, STAT_allocated_bytes) &&
           sums.active == stats_current_all(a->stats, STAT_active_bytes) &&
           sums.requested == stats_current_all(a->stats, STAT_requested_bytes) &&
           sums.reserved == stats_current_all(a->stats, STAT_reserved_bytes) &&
           sums.inactive_split == stats_current_all(a->stats, STAT_inactive_split_bytes) &&
           sums.reusable == stats_get(a->stats, COUNTER_reusable_bytes) &&
           sums.requested <= sums.active;
}
