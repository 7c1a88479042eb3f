/* The books of chunks: what is reserved, which slot has a chunk, and how large handles are. */
#include "allocator/pool/arena_chunks.h"

#include <stddef.h>
#include <string.h>

#include "allocator/base/policy.h"
#include "allocator/pool/packing.h"
#include "allocator/state/record.h"

/* Records an action on a handle. slot: from 1, where it is mapped or at home; 0: nowhere. */
static void record(const struct arena *arena, enum event_action action, uint32_t slot,
                   uint64_t bytes)
{
    record_chunk(arena->allocator, action, slot ? arena_address(arena, slot - 1) : 0, bytes);
}

static void book(struct arena *arena, uint32_t number)
{
    struct chunk *chunk = &arena->chunk[number];
    uint32_t handles = arena_is_first(arena, number);
    struct device_stats *stats = arena->allocator->stats;
    chunk->booked = 1;
    arena->part[chunk->pool].chunks++;
    arena->part[chunk->pool].handles += handles;
    stats_add(stats, STAT_segment, chunk->pool, handles);
    stats_add(stats, STAT_reserved_bytes, chunk->pool, CHUNK_BYTES);
}

static void book_out(struct arena *arena, uint32_t number)
{
    struct chunk *chunk = &arena->chunk[number];
    uint32_t handles = arena_is_first(arena, number);
    struct device_stats *stats = arena->allocator->stats;
    chunk->booked = 0;
    arena->part[chunk->pool].chunks--;
    arena->part[chunk->pool].handles -= handles;
    stats_subtract(stats, STAT_segment, chunk->pool, handles);
    stats_subtract(stats, STAT_reserved_bytes, chunk->pool, CHUNK_BYTES);
}

DIRECT void arena_own(struct arena *arena, uint32_t number, uint32_t slot)
{
    struct chunk *chunk = &arena->chunk[number];
    enum stat_pool pool = arena_pool_of(arena, slot);
    int moves = chunk->booked && chunk->pool != pool;
    if (moves)
        book_out(arena, number);
    chunk->owner = slot + 1;
    chunk->pool = pool;
    arena->present[slot] = chunk->home == slot + 1 ? AT_HOME : AWAY;
    if (moves)
        book(arena, number);
}

static int is_free(const struct arena *arena, uint32_t number)
{
    return number > arena->made || (!arena->chunk[number].booked && !arena->chunk[number].owner);
}

uint32_t arena_number_handle(struct arena *arena, uint32_t least, uint32_t span)
{
    uint32_t first = least < arena->unused ? arena->unused : least, found = 0;
    for (; found < span; found++)
        if (!is_free(arena, first + found)) {
            first += found + 1;
            found = UINT32_MAX;
        }
    if (first + span - 1 > arena->made)
        arena->made = first + span - 1;
    if (least == 1 && span == 1)
        arena->unused = first;
    for (uint32_t number = first; number < first + span; number++) {
        arena->chunk[number].first = first;
        arena->chunk[number].span = (uint8_t)span;
    }
    return first;
}

void arena_add_handle(struct arena *arena, uint32_t first)
{
    const struct chunk *chunk = &arena->chunk[first];
    for (uint32_t i = 0; i < chunk->span; i++)
        book(arena, first + i);
    stats_count(arena->allocator->stats, COUNTER_num_device_alloc, 1);
    record(arena, EVENT_segment_map, chunk->owner, arena_handle_bytes(arena, first));
}

void arena_remove_handle(struct arena *arena, uint32_t first)
{
    const struct chunk *chunk = &arena->chunk[first];
    uint32_t span = chunk->span;
    record(arena, EVENT_segment_unmap, chunk->home, arena_handle_bytes(arena, first));
    for (uint32_t number = first; number < first + span; number++)
        book_out(arena, number);
    arena_free_number(arena, first);
    memset(&arena->chunk[first], 0, span * sizeof *chunk);
    stats_count(arena->allocator->stats, COUNTER_num_device_free, 1);
}

void arena_set_leaving(struct arena *arena, uint32_t number, uint32_t batch)
{
    struct chunk *chunk = &arena->chunk[arena->chunk[number].first];
    for (uint32_t span = chunk->span; span--; chunk++)
        chunk->leaving = batch;
}

static uint64_t booked_of(const struct arena *arena)
{
    return (uint64_t)(arena->part[SMALL_POOL].chunks + arena->part[LARGE_POOL].chunks) *
           CHUNK_BYTES;
}

/* Of `booked` bytes, those that are neither idle nor active once `more` bytes are active. They lie
 * between blocks, where nothing fits. */
static uint64_t lost_of(const struct arena *arena, uint64_t booked, uint64_t more)
{
    uint64_t active = stats_current_all(arena->allocator->stats, STAT_active_bytes) + more;
    uint64_t used = active + arena_idle_bytes(arena);
    return booked > used ? booked - used : 0;
}

int arena_loses_much(const struct arena *arena)
{
    uint64_t booked = booked_of(arena);
    return lost_of(arena, booked, 0) > booked / policy.loss_part;
}

/* A handle that holds a live block cannot move, so small handles waste least. But the driver's
 * calls to make or move a handle cost the same for any size. So a handle is a part of all memory
 * (policy.handle_part), and smaller where much is lost already (loss_part). Memory is made
 * when nothing is idle except what fits no gap. So what is lost then is what large handles have
 * cost so far. Where blocks outlive their sizes, handles have one chunk. test/replay/tried.md has
 * the cost of other numbers. */
uint32_t arena_span_for(const struct arena *arena, uint64_t size, uint64_t missing)
{
    uint64_t booked = booked_of(arena);
    uint64_t lost = lost_of(arena, booked + missing, size);
    uint64_t may = (booked + size) / policy.loss_part;
    if (size <= MIB || packing_is_varied(arena->allocator, size) || may <= lost)
        return 1;
    uint64_t bytes = (booked + size) / policy.handle_part;
    bytes = (bytes < may - lost ? bytes : may - lost) / CHUNK_BYTES;
    return bytes < 1                        ? 1
           : bytes < arena->claim.span_most ? (uint32_t)bytes
                                            : arena->claim.span_most;
}
