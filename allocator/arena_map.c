/* The driver's part of a claim: what its slots have been given is mapped there. All was decided and
 * booked before, the driver is called without the lock, and what it did is booked after it. */
#include "allocator/arena_map.h"

/* A chunk is at home where it was first. But what small blocks have needed once stays with them: else
 * each that comes after all were free would need a claim. */
void arena_give_home(struct arena *arena, uint32_t chunk, uint32_t slot)
{
    if (!arena->chunk[chunk].home || arena_pool_of(arena, slot) == SMALL_POOL)
        arena->chunk[chunk].home = slot + 1;
    arena->present[slot] = arena->chunk[chunk].home == slot + 1 ? AT_HOME : AWAY;
}

/* Piece by piece. Of one that cannot be mapped whole nothing is, or (*stuck) it is of no use any more. */
static int map_chunk(const struct allocator *a, const struct arena *arena, uint32_t number,
                     uint64_t address, int *stuck)
{
    uint64_t bytes = arena->chunk[number].bytes, done = 0;
    int code = 0;
    while (!code && done < bytes) {
        const struct chunk *piece = arena_piece(arena, number, done);
        code = a->ops->chunk_map(a->device, address + done, piece->bytes, piece->handle);
        done += code ? 0 : piece->bytes;
    }
    if (code && done)
        *stuck = a->ops->chunk_unmap(a->device, address, done) != 0;
    return code;
}

/* Calls of the driver, without the lock; `done` slots have been mapped. */
static int map_slots(const struct allocator *a, struct arena *arena, const struct window *window,
                     uint32_t *done)
{
    int code = 0;
    for (uint32_t slot = window->first; !code && slot < window->end; slot++) {
        struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
        if (arena->slot[slot].changing && !chunk->handle && !chunk->parts)
            code = a->ops->chunk_create(a->device, chunk->bytes, &chunk->handle);
    }
    for (*done = window->first; !code && *done < window->end; ++*done) {
        struct slot *s = &arena->slot[*done];
        uint64_t address = arena_address(arena, *done);
        if (s->changing && s->was && !(code = a->ops->chunk_unmap(a->device, address, s->bytes)))
            s->unmapped = 1;
        if (s->changing && !code)
            code = map_chunk(a, arena, s->chunk, address, &s->stuck);
        if (code)
            break;
    }
    return code;
}

/* The same, for what has been mapped: access for the device and its peers. */
static int allow_slots(const struct allocator *a, const struct arena *arena,
                       const struct window *window)
{
    int code = 0;
    for (uint32_t slot = window->first, end; !code && slot < window->end; slot = end + 1) {
        for (end = slot; end < window->end && arena->slot[end].changing; end++)
            ;
        uint64_t bytes = end > slot ? window_needs(arena, window, end - 1) : 0;
        if (end > slot)
            code = a->ops->chunk_allow(a->device, arena_address(arena, slot),
                                       (end - 1 - slot) * arena->chunk_bytes + bytes);
    }
    return code;
}

/* The driver refused: takes down what was mapped, without the lock. A slot whose mapping stays is
 * of no use any more. */
static void unmap_slots(const struct allocator *a, struct arena *arena, const struct window *window,
                        uint32_t done)
{
    for (uint32_t slot = window->first; slot < done; slot++)
        if (arena->slot[slot].changing && a->ops->chunk_unmap(a->device, arena_address(arena, slot),
                                                              window_needs(arena, window, slot)))
            arena->slot[slot].stuck = 1;
}

/* Books what the driver made, and ends the change. */
static void settle_slots(struct arena *arena, const struct window *window, int failed)
{
    for (uint32_t slot = window->first; slot < window->end; slot++) {
        struct slot *s = &arena->slot[slot];
        struct chunk *chunk = &arena->chunk[s->chunk];
        if (!s->changing)
            continue;
        if (chunk->handle && !chunk->booked)
            arena_add_chunk(arena, s->chunk);
        if (failed) {
            chunk->owner = 0;
            arena->present[slot] = NOT_PRESENT;
            if (s->stuck) { /* mapped without access: for nobody, until the context ends */
                chunk->leaving = NEVER_LEAVES;
                s->bytes = chunk->bytes;
            } else {
                if (chunk->booked)
                    arena_count_spare(arena, chunk, 1);
                else
                    arena_free_number(arena, s->chunk);
                s->chunk = s->unmapped ? 0 : s->was;
                s->bytes = s->chunk ? s->bytes : 0;
            }
        } else {
            stats_count(arena->allocator->stats, COUNTER_num_maps, 1);
            arena_give_home(arena, s->chunk, slot);
            s->bytes = chunk->bytes;
        }
        stats_count(arena->allocator->stats, COUNTER_num_unmaps, s->unmapped);
        s->changing = s->stuck; /* then for ever */
        s->was = 0;
        s->unmapped = 0;
    }
}

/* What is in reserve for what this claim still has to cut, others must not use up. */
int arena_make_usable(struct allocator *a, struct arena *arena, const struct window *window,
                      uint64_t bytes)
{
    uint32_t done = 0;
    struct block *kit = arena->kit;
    unsigned kits = arena->kits;
    uint64_t walks = arena->walks;
    arena->kit = NULL;
    arena->kits = 0;
    a->growing_bytes += bytes;
    allocator_call(a);
    int code = map_slots(a, arena, window, &done);
    code = code ? code : allow_slots(a, arena, window);
    if (code)
        unmap_slots(a, arena, window, done);
    allocator_return(a);
    while (!code && !a->forgotten && walks != arena->walks) {
        walks = arena->walks; /* one that began meanwhile has left out these slots */
        allocator_call(a);
        allow_slots(a, arena, window);
        allocator_return(a);
    }
    a->growing_bytes -= bytes;
    arena_put_kit(a, arena, kit, kits);
    if (a->forgotten)
        return ALLOCATOR_PASS;
    settle_slots(arena, window, code != 0);
    return code;
}
