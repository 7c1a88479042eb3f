/* The books of chunks: what is reserved, whose it is, and what is made of what. */
#include "allocator/arena_chunks.h"

#include <assert.h>
#include <stddef.h>

#include "allocator/record.h"

/* Where it was mapped first; 0: nowhere yet. */
static void record(const struct arena *arena, enum event_action action, uint32_t slot,
                   uint64_t bytes)
{
    record_chunk(arena->allocator, action, slot ? arena_address(arena, slot - 1) : 0, bytes);
}

static void book(struct arena *arena, struct chunk *chunk)
{
    struct device_stats *stats = arena->allocator->stats;
    chunk->booked = 1;
    arena->part[chunk->pool].chunks++;
    arena->part[chunk->pool].booked += chunk->bytes;
    stats_add(stats, STAT_segment, chunk->pool, 1);
    stats_add(stats, STAT_reserved_bytes, chunk->pool, chunk->bytes);
}

static void book_out(struct arena *arena, struct chunk *chunk)
{
    struct device_stats *stats = arena->allocator->stats;
    chunk->booked = 0;
    arena->part[chunk->pool].chunks--;
    arena->part[chunk->pool].booked -= chunk->bytes;
    stats_subtract(stats, STAT_segment, chunk->pool, 1);
    stats_subtract(stats, STAT_reserved_bytes, chunk->pool, chunk->bytes);
}

void arena_own(struct arena *arena, uint32_t number, uint32_t slot)
{
    struct chunk *chunk = &arena->chunk[number];
    enum stat_pool pool = arena_pool_of(arena, slot);
    int moves = chunk->booked && chunk->pool != pool;
    if (moves)
        book_out(arena, chunk);
    chunk->owner = slot + 1;
    chunk->pool = pool;
    arena->present[slot] = chunk->home == slot + 1 ? AT_HOME : AWAY;
    if (moves)
        book(arena, chunk);
}

void arena_add_chunk(struct arena *arena, uint32_t number)
{
    struct chunk *chunk = &arena->chunk[number];
    arena->tails += chunk->bytes < arena->chunk_bytes;
    book(arena, chunk);
    stats_count(arena->allocator->stats, COUNTER_num_device_alloc, 1);
    record(arena, EVENT_segment_map, chunk->owner, chunk->bytes);
}

void arena_remove_chunk(struct arena *arena, uint32_t number)
{
    struct chunk *chunk = &arena->chunk[number];
    record(arena, EVENT_segment_unmap, chunk->home, chunk->bytes);
    arena->tails -= chunk->bytes < arena->chunk_bytes;
    book_out(arena, chunk);
    *chunk = (struct chunk){0};
    arena_free_number(arena, number);
    stats_count(arena->allocator->stats, COUNTER_num_device_free, 1);
}

void arena_compose(struct arena *arena, uint32_t number, uint32_t part)
{
    struct chunk *whole = &arena->chunk[number], *chunk = &arena->older->chunk[part];
    assert(chunk->handle && chunk->booked && !chunk->owner && !chunk->retired);
    if (!whole->parts)
        *whole = (struct chunk){.pool = LARGE_POOL};
    record(arena->older, EVENT_segment_unmap, chunk->home, chunk->bytes);
    book_out(arena->older, chunk);
    chunk->home = 0;
    chunk->part_of = number;
    chunk->next_part = whole->parts;
    whole->parts = part;
    whole->bytes += chunk->bytes;
    if (whole->bytes == arena->chunk_bytes) {
        book(arena, whole);
        record(arena, EVENT_segment_map, 0, whole->bytes);
    }
}

void arena_decompose(struct arena *arena, uint32_t number)
{
    struct chunk *whole = &arena->chunk[number], *chunk;
    record(arena, EVENT_segment_unmap, whole->home, whole->bytes);
    book_out(arena, whole);
    for (uint32_t part = whole->parts; part; part = chunk->next_part) {
        chunk = &arena->older->chunk[part];
        chunk->part_of = 0;
        chunk->retired = whole->retired;
        book(arena->older, chunk);
        record(arena->older, EVENT_segment_map, 0, chunk->bytes);
        if (!chunk->leaving)
            arena_count_spare(arena->older, chunk, 1);
    }
    *whole = (struct chunk){0};
    arena_free_number(arena, number);
}

void arena_set_leaving(struct arena *arena, uint32_t number, uint32_t batch)
{
    struct chunk *chunk = &arena->chunk[number];
    chunk->leaving = batch;
    for (uint32_t part = chunk->parts; part; part = chunk->next_part) {
        chunk = &arena->older->chunk[part];
        chunk->leaving = batch;
        chunk->stays = 0;
    }
}

int arena_is_lent(const struct arena *arena, uint32_t number)
{
    const struct chunk *chunk = &arena->chunk[number];
    int lent = chunk->lent != 0;
    for (uint32_t part = chunk->parts; part; part = chunk->next_part) {
        chunk = &arena->older->chunk[part];
        lent |= chunk->lent != 0;
    }
    return lent;
}

const struct chunk *arena_piece(const struct arena *arena, uint32_t number, uint64_t offset)
{
    const struct chunk *chunk = &arena->chunk[number];
    for (uint32_t part = chunk->parts; part; part = chunk->next_part) {
        chunk = &arena->older->chunk[part];
        if (offset < chunk->bytes)
            break;
        offset -= chunk->bytes;
    }
    return chunk;
}
