/* What could be moved, and need not be made. */
#include "allocator/mapping/window.h"

int window_chunk_is_idle(const struct arena *arena, uint32_t chunk)
{
    const struct chunk *c = &arena->chunk[chunk];
    return !c->leaving && !c->retired && (!c->owner || arena->idle[c->owner - 1]);
}

uint32_t window_idle_tail(const struct arena *arena, uint64_t bytes)
{
    for (uint32_t number = 1; arena->idle_tails && number <= arena->made; number++)
        if (arena->chunk[number].booked && arena->chunk[number].bytes == bytes &&
            window_chunk_is_idle(arena, number))
            return number;
    return 0;
}

int window_is_spare(const struct arena *arena, uint32_t number)
{
    const struct chunk *chunk = &arena->chunk[number];
    return chunk->booked && !chunk->owner && !chunk->leaving && !chunk->retired &&
           chunk->bytes == arena->chunk_bytes;
}

void window_supply(const struct arena *arena, struct supply *supply)
{
    *supply = (struct supply){0};
    for (uint32_t slot = arena_next_idle(arena, 0); slot < arena->slots;
         slot = arena_next_idle(arena, arena_handle_end(arena, slot)))
        if (arena_present(arena, slot) == arena->chunk_bytes)
            supply->of[arena->chunk[arena->slot[slot].chunk].span]++;
    for (uint32_t number = 1; arena->spares && number <= arena->made; number++)
        if (window_is_spare(arena, number) && arena_is_first(arena, number))
            supply->of[arena->chunk[number].span]++;
}

uint64_t window_fresh_alone(const struct arena *arena, uint64_t size)
{
    uint64_t needed = size / arena->chunk_bytes, have = arena->idle_slots + arena->spares;
    uint64_t tail = size % arena->chunk_bytes;
    return (needed > have ? needed - have : 0) * arena->chunk_bytes +
           (tail && !window_idle_tail(arena, tail) ? tail : 0);
}
