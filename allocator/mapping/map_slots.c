/* The driver's part of a claim: maps the handles that its slots have been given. All was decided
 * and booked before. The driver is called without the lock, and what it did is booked
 * afterwards. */
#include "allocator/mapping/map_slots.h"

#include <assert.h>

#include "allocator/mapping/divide.h"
#include "allocator/pool/arena_blocks.h"
#include "allocator/state/enter.h"

/* A chunk is at home in the slot where it was first mapped. Except: a chunk that small blocks have
 * needed stays at home with them. Otherwise each small block that comes after all were free would
 * need a claim. */
void arena_give_home(struct arena *arena, uint32_t chunk, uint32_t slot)
{
    if (!arena->chunk[chunk].home || arena_pool_of(arena, slot) == SMALL_POOL)
        arena->chunk[chunk].home = slot + 1;
    arena->present[slot] = arena->chunk[chunk].home == slot + 1 ? AT_HOME : AWAY;
}

/* Returns the handle that is yet to be mapped from the slot on, or 0. was_mapped: the handle that
 * was mapped there until this claim. */
static uint32_t is_to_be_mapped(const struct arena *arena, uint32_t slot)
{
    const struct slot *s = &arena->slot[slot];
    return s->changing && s->chunk && arena_is_first(arena, s->chunk) ? s->chunk : 0;
}

static uint32_t was_mapped(const struct arena *arena, uint32_t slot)
{
    const struct slot *s = &arena->slot[slot];
    return s->changing && s->was && arena_is_first(arena, s->was) ? s->was : 0;
}

static void note_mapped(struct arena *arena, uint32_t slot, uint32_t number, int mapped)
{
    for (uint32_t end = slot + arena->chunk[number].span; slot < end; slot++)
        arena->slot[slot].mapped = mapped;
}

/* Has the driver create, unmap and map, without the lock. */
static int map_slots(const struct allocator *a, struct arena *arena, const struct window *window)
{
    int code = 0;
    uint32_t number;
    for (uint32_t slot = window->first; !code && slot < window->end; slot++)
        if ((number = is_to_be_mapped(arena, slot)) && !arena->chunk[number].handle)
            code = a->ops->chunk_create(a->device, arena_handle_bytes(arena, number),
                                        &arena->chunk[number].handle);
    for (uint32_t slot = window->low; !code && slot < window->high; slot++) {
        if (!(number = was_mapped(arena, slot)))
            continue;
        code = a->ops->chunk_unmap(a->device, arena_address(arena, slot),
                                   arena_handle_bytes(arena, number));
        for (uint32_t i = 0; !code && i < arena->chunk[number].span; i++)
            arena->slot[slot + i].unmapped = 1;
    }
    for (uint32_t slot = window->first; !code && slot < window->end; slot++)
        if ((number = is_to_be_mapped(arena, slot)) &&
            !(code = a->ops->chunk_map(a->device, arena_address(arena, slot),
                                       arena_handle_bytes(arena, number),
                                       arena->chunk[number].handle)))
            note_mapped(arena, slot, number, 1);
    return code;
}

/* Has the driver give the device and its peers access to what was mapped, without the lock. */
static int allow_slots(const struct allocator *a, const struct arena *arena,
                       const struct window *window)
{
    int code = 0;
    for (uint32_t slot = window->first, end; !code && slot < window->end; slot = end + 1) {
        for (end = slot; end < window->end && arena->slot[end].changing && arena->slot[end].chunk;
             end++)
            ;
        if (end > slot)
            code = a->ops->chunk_allow(a->device, arena_address(arena, slot),
                                       (end - slot) * CHUNK_BYTES);
    }
    return code;
}

/* Takes down what was mapped, after the driver refused a call; without the lock. Slots whose
 * mapping stays are out of use. */
static void unmap_slots(const struct allocator *a, struct arena *arena, const struct window *window)
{
    uint32_t number;
    for (uint32_t slot = window->first; slot < window->end; slot++)
        if ((number = is_to_be_mapped(arena, slot)) && arena->slot[slot].mapped &&
            a->ops->chunk_unmap(a->device, arena_address(arena, slot),
                                arena_handle_bytes(arena, number)) == 0)
            note_mapped(arena, slot, number, 0);
}

/* Gives up a slot that did not get its chunk. */
static void give_up(struct arena *arena, uint32_t slot)
{
    struct slot *s = &arena->slot[slot];
    struct chunk *chunk = &arena->chunk[s->chunk];
    if (arena->present[slot] == DIVIDED) {
        arena_undivide(arena, slot);
        s->chunk = s->mapped ? s->chunk : 0;
        return;
    }
    chunk->owner = 0;
    arena->present[slot] = NOT_PRESENT;
    if (s->mapped) { /* still mapped, perhaps without access: unusable until the context ends */
        chunk->leaving = NEVER_LEAVES;
        return;
    }
    if (chunk->booked)
        arena_count_spare(arena, chunk, 1);
    else
        arena_free_number(arena, s->chunk);
    s->chunk = 0;
}

/* Books what the driver did, and ends the change. */
static void settle_slots(struct arena *arena, const struct window *window, int failed)
{
    struct device_stats *stats = arena->allocator->stats;
    for (uint32_t slot = window->low; slot < window->high; slot++) {
        struct slot *s = &arena->slot[slot];
        uint32_t number = is_to_be_mapped(arena, slot);
        if (!s->changing)
            continue;
        if (number && arena->chunk[number].handle && !arena->chunk[number].booked)
            arena_add_handle(arena, number);
        stats_count(stats, COUNTER_num_maps, number && !failed);
        stats_count(stats, COUNTER_num_unmaps, was_mapped(arena, slot) && s->unmapped);
        if (s->chunk && failed)
            give_up(arena, slot);
        else if (s->chunk && arena->present[slot] != DIVIDED)
            arena_give_home(arena, s->chunk, slot);
        if (!s->chunk && !s->unmapped)
            s->chunk = s->was;
        arena->joined[slot] = s->chunk && !arena_is_first(arena, s->chunk);
        s->changing = s->mapped = s->mapped && failed; /* if so, for ever */
        s->was = 0;
        s->unmapped = 0;
    }
}

int arena_abandon(struct arena *arena, const struct window *window)
{
    settle_slots(arena, window, 1);
    return arena->allocator->ops->out_of_memory;
}

/* The claim takes its reserve of block structs along, so that no other thread uses it up. */
int arena_make_usable(struct allocator *a, struct arena *arena, const struct window *window,
                      uint64_t bytes)
{
    struct block *kit = arena->kit.first;
    unsigned kits = arena->kit.count;
    uint64_t walks = arena->left.walks;
    arena->kit.first = NULL;
    arena->kit.count = 0;
    a->growth.bytes += bytes;
    allocator_call(a);
    uint64_t begin = a->ops->now_ns();
    int code = map_slots(a, arena, window);
    code = code ? code : allow_slots(a, arena, window);
    if (code)
        unmap_slots(a, arena, window);
    uint64_t took = a->ops->now_ns() - begin;
    allocator_return(a);
    stats_count(a->stats, COUNTER_map_ns, took);
    while (!code && !a->life.forgotten && walks != arena->left.walks) {
        walks = arena->left.walks; /* a walk that began meanwhile has left out these slots */
        allocator_call(a);
        if ((code = allow_slots(a, arena, window)))
            unmap_slots(a, arena, window);
        allocator_return(a);
    }
    a->growth.bytes -= bytes;
    arena_put_kit(a, arena, kit, kits);
    if (a->life.forgotten)
        return ALLOCATOR_PASS;
    settle_slots(arena, window, code != 0);
    return code;
}
