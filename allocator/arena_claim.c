/* Claims: a block of an arena is made where no hole is large enough.
 *
 * A window is a run of reusable and absent blocks. Of all that are long enough the cheapest is
 * taken: the one that needs the least new memory, and then the fewest calls of the driver. A slot
 * of it costs nothing if its memory is present, or if the chunk that was mapped here before is idle
 * where it is now: it is called back. Otherwise some chunk that is idle is mapped here, or a new
 * one. What was mapped here before is taken down first, if work that may use it has passed; as long
 * as there are few mappings the windows beyond the last slot used are cheaper. So addresses are
 * spent (KEEP times the memory) until what the program repeats has addresses of its own.
 *
 * All is decided and booked under the lock, the driver is called without it: the block is claimed
 * meanwhile, and its slots are changing. */
#include <assert.h>
#include <stddef.h>

#include "allocator/fence.h"
#include "allocator/pool.h"
#include "allocator/window.h"

#define KEEP 4
#define KEEP_LEAST 64
#define ASK_FROM 8 /* chunks: to make them takes longer than to ask what is free */

/* Takes the blocks of the window out of pool and lists, as one. */
static struct block *carve(struct arena *arena, const struct window *window, uint64_t size)
{
    uint64_t end = window->begin + size;
    struct block *whole = NULL, *block = window->from, *next;
    for (; !whole || block_end(whole) < end; block = next) {
        uint64_t begin = whole ? block_address(block) : window->begin, until = end;
        if (block_end(block) <= end)
            until = block_end(block);
        else if (block->state == BLOCK_ABSENT)
            until = arena_address(arena, window->end);
        block = arena_isolate(arena, block, begin, until);
        next = block->next;
        if (whole)
            block_join(whole, block);
        else
            whole = block;
    }
    return whole;
}

/* Gives slots the chunks that were mapped there, where those are idle. */
static void call_back(struct arena *arena, const struct window *window)
{
    for (uint32_t slot = window->first; slot < window->end; slot++) {
        uint32_t chunk = arena->slot[slot].chunk;
        if (!chunk || arena_is_present(arena, slot) || !window_chunk_is_idle(arena, chunk))
            continue;
        if (arena->chunk[chunk].owner)
            arena_evict(arena, arena->chunk[chunk].owner - 1);
        else
            arena->spares--;
        arena->chunk[chunk].owner = slot + 1;
    }
}

/* A chunk that is idle, from the smallest hole that has one; 0: none. */
static uint32_t take_idle(struct arena *arena)
{
    struct allocator *a = arena->segment->allocator;
    struct tree_node *node = NULL;
    if (arena->spares) {
        uint32_t chunk = 1;
        while (!arena->chunk[chunk].booked || arena->chunk[chunk].owner ||
               arena->chunk[chunk].leaving || arena->chunk[chunk].retired)
            chunk++;
        arena->spares--;
        return chunk;
    }
    if (!arena->idle_slots)
        return 0;
    uint64_t size = arena->chunk_bytes, address = 0;
    for (;; address = node->minor + 1) {
        node = tree_at_least(&a->pool[POOL_MAPPED], size, address);
        size = node->major;
        uint32_t slot =
            (uint32_t)((node->minor - arena->base + arena->chunk_bytes - 1) / arena->chunk_bytes);
        if (arena_address(arena, slot + 1) > node->minor + node->major)
            continue;
        uint32_t chunk = arena->slot[slot].chunk;
        arena_evict(arena, slot);
        return chunk;
    }
}

/* The number of a chunk that the driver has yet to make; none below `chunk` is free. */
static uint32_t number_chunk(struct arena *arena, uint32_t chunk)
{
    while (chunk <= arena->made && (arena->chunk[chunk].booked || arena->chunk[chunk].owner))
        chunk++;
    if (chunk > arena->made)
        arena->made = chunk;
    return chunk;
}

/* Gives the other slots (*moves) chunks that the driver will map there. Returns how many of those
 * it must make. */
static uint32_t move_in(struct arena *arena, const struct window *window, uint32_t *moves)
{
    uint32_t fresh = 0, last = 0;
    for (uint32_t slot = window->first; slot < window->end; slot++) {
        struct slot *s = &arena->slot[slot];
        if (arena_is_present(arena, slot))
            continue;
        uint32_t chunk = take_idle(arena);
        if (!chunk) {
            chunk = last = number_chunk(arena, last + 1);
            fresh++;
        }
        arena->chunk[chunk].owner = slot + 1;
        ++*moves;
        s->changing = 1;
        s->was = s->chunk;
        s->chunk = chunk;
    }
    return fresh;
}

/* Calls of the driver, without the lock; `done` slots have been mapped. */
static int map_slots(struct allocator *a, const struct window *window, uint32_t *done)
{
    struct arena *arena = a->arena;
    uint64_t bytes = arena->chunk_bytes;
    int code = 0;
    for (uint32_t slot = window->first; !code && slot < window->end; slot++) {
        struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
        if (arena->slot[slot].changing && !chunk->handle)
            code = a->ops->chunk_create(a->device, bytes, &chunk->handle);
    }
    for (*done = window->first; !code && *done < window->end; ++*done) {
        struct slot *s = &arena->slot[*done];
        uint64_t address = arena_address(arena, *done);
        if (s->changing && s->was && !(code = a->ops->chunk_unmap(a->device, address, bytes)))
            s->unmapped = 1;
        if (s->changing && !code)
            code = a->ops->chunk_map(a->device, address, bytes, arena->chunk[s->chunk].handle);
        if (code)
            break;
    }
    for (uint32_t slot = window->first, end; !code && slot < window->end; slot = end + 1) {
        for (end = slot; end < window->end && arena->slot[end].changing; end++)
            ;
        if (end > slot)
            code = a->ops->chunk_allow(a->device, arena_address(arena, slot), (end - slot) * bytes);
    }
    return code;
}

/* The driver refused: takes down what was mapped, without the lock. A slot whose mapping stays is
 * of no use any more. */
static void unmap_slots(struct allocator *a, const struct window *window, uint32_t done)
{
    struct arena *arena = a->arena;
    for (uint32_t slot = window->first; slot < done; slot++)
        if (arena->slot[slot].changing &&
            a->ops->chunk_unmap(a->device, arena_address(arena, slot), arena->chunk_bytes))
            arena->slot[slot].stuck = 1;
}

/* Books what the driver made, and ends the change. */
static void settle_slots(struct allocator *a, const struct window *window, int failed)
{
    struct arena *arena = a->arena;
    for (uint32_t slot = window->first; slot < window->end; slot++) {
        struct slot *s = &arena->slot[slot];
        struct chunk *chunk = &arena->chunk[s->chunk];
        if (!s->changing)
            continue;
        if (chunk->handle && !chunk->booked)
            arena_add_chunk(a, s->chunk);
        if (failed) {
            chunk->owner = 0;
            arena->spares += chunk->handle != 0;
            s->chunk = s->unmapped ? 0 : s->was;
        } else {
            stats_count(a->stats, COUNTER_num_maps, 1);
            chunk->home = chunk->home ? chunk->home : slot + 1;
        }
        s->changing = s->stuck; /* then for ever */
        s->was = 0;
        s->unmapped = 0;
    }
}

/* The window's block back to where its parts came from. */
static void dissolve(struct arena *arena, struct block *block)
{
    uint64_t begin = block_address(block), until = block_end(block);
    for (struct block *rest; block; block = rest) {
        uint64_t end = block_end(block);
        uint32_t slot = (uint32_t)((block_address(block) - arena->base) / arena->chunk_bytes);
        int present = arena_is_present(arena, slot);
        while (arena_address(arena, slot) < end && arena_is_present(arena, slot) == present)
            slot++;
        rest = arena_address(arena, slot) < end
                   ? arena_cut(arena, block, arena_address(arena, slot))
                   : NULL;
        arena_put(block, present ? BLOCK_REUSABLE : BLOCK_ABSENT);
    }
    arena_go_home(arena, begin, until);
}

/* Has the driver make the window's slots usable, where they are not; the lock is dropped meanwhile.
 * What is in reserve for what this claim still has to cut, others must not use up.
 */
static int make_usable(struct allocator *a, const struct window *window, uint32_t fresh)
{
    uint64_t bytes = fresh * a->arena->chunk_bytes;
    uint32_t done = 0;
    struct block *kit = a->arena->kit;
    a->arena->kit = NULL;
    a->growing_bytes += bytes;
    allocator_call(a);
    int code = map_slots(a, window, &done);
    if (code)
        unmap_slots(a, window, done);
    allocator_return(a);
    a->growing_bytes -= bytes;
    arena_put_kit(a, kit);
    if (a->forgotten)
        return ALLOCATOR_PASS;
    settle_slots(a, window, code != 0);
    return code;
}

/* What the driver has free, where much is wanted: who asks for more than there is would else fill
 * the device with chunks before that is seen, each time. The lock is dropped meanwhile. */
static uint64_t room_for(struct allocator *a, uint64_t size)
{
    uint64_t room = UINT64_MAX, total;
    if (size / a->arena->chunk_bytes < ASK_FROM)
        return room;
    allocator_call(a);
    if (a->ops->memory_free(a->device, &room, &total))
        room = UINT64_MAX;
    allocator_return(a);
    return room;
}

/* The cheapest window, and may it be had? `room`: for new chunks. */
static int choose(struct allocator *a, uint64_t size, uint64_t room, struct window *window)
{
    struct arena *arena = a->arena;
    uint64_t most = (arena->chunks + size / arena->chunk_bytes) * KEEP;
    most = most < KEEP_LEAST ? KEEP_LEAST : most;
    most = most < arena->slots ? most : arena->slots;
    /* Rather more addresses than no memory. */
    if (!window_find(arena, size, (uint32_t)most, window) &&
        !window_find(arena, size, arena->slots, window))
        return 0;
    uint64_t reserved = stats_current_all(a->stats, STAT_reserved_bytes) + a->growing_bytes;
    uint64_t bytes = window->fresh * arena->chunk_bytes;
    return !bytes || (bytes <= room && a->limit >= bytes && reserved <= a->limit - bytes);
}

int arena_claim(struct allocator *a, uint64_t size, int grow, struct block **taken)
{
    struct arena *arena = a->arena;
    struct window chosen, *window = &chosen;
    int code = 0;
    if (size / arena->chunk_bytes > arena->slots / 2)
        return a->ops->out_of_memory;
    uint64_t room = grow ? room_for(a, size) : 0;
    arena_poll(a);
    if (a->forgotten) /* either drops the lock */
        return ALLOCATOR_PASS;
    if (!choose(a, size, room, window) ||
        arena_fill_kit(arena, 4 * (window->end - window->first) + 8))
        return a->ops->out_of_memory;
    struct block *block = carve(arena, window, size);
    arena->top = window->end > arena->top ? window->end : arena->top;
    call_back(arena, window);
    uint32_t moves = 0, fresh = move_in(arena, window, &moves);
    arena_note_idle(arena);
    if (moves && (code = make_usable(a, window, fresh))) {
        if (code > 0)
            dissolve(arena, block);
        return code;
    }
    if (block_size(block) > size)
        arena_put(arena_cut(arena, block, block_address(block) + size), BLOCK_REUSABLE);
    *taken = block;
    return 0;
}
