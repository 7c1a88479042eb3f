/* Claims: a block of an arena is made where no hole is large enough.
 *
 * A window is a run of reusable and absent blocks. Of all that are long enough the cheapest is
 * taken: the one that needs the least new memory, then the least idle memory, and then the fewest
 * calls of the driver. A slot of it costs nothing if its memory is present, or if the chunk that
 * was mapped here before is idle where it is now: it is called back. Otherwise some chunk that is
 * idle is mapped here, or a new one. What was mapped here before is taken down first, if work that
 * may use it has passed; as long as there are few mappings the windows beyond the last slot used
 * are cheaper. So addresses are spent (KEEP times the memory) until what the program repeats has
 * addresses of its own.
 *
 * All is decided and booked under the lock, the driver is called without it: the block is claimed
 * meanwhile, and its slots are changing. */
#include <assert.h>
#include <stddef.h>

#include "allocator/fence.h"
#include "allocator/native.h"
#include "allocator/pool.h"
#include "allocator/segment.h"
#include "allocator/thread_caches.h"
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
    if (window->tail && block_end(whole) > end)
        arena_put(arena_cut(arena, whole, end), BLOCK_ABSENT);
    return whole;
}

/* Gives slots the chunks that were mapped there, where those are idle. */
static void call_back(struct arena *arena, const struct window *window)
{
    for (uint32_t slot = window->first; slot < window->end; slot++) {
        uint32_t chunk = arena->slot[slot].chunk;
        if (!chunk || arena_is_present(arena, slot) || !window_chunk_is_idle(arena, chunk) ||
            arena->chunk[chunk].bytes != window_needs(arena, window, slot))
            continue;
        if (arena->chunk[chunk].owner)
            arena_evict(arena, arena->chunk[chunk].owner - 1);
        else
            arena_count_spare(arena, &arena->chunk[chunk], -1);
        arena->chunk[chunk].owner = slot + 1;
    }
}

/* A tail that is idle; 0: none. */
static uint32_t take_tail(struct arena *arena, uint64_t bytes)
{
    uint32_t number = window_idle_tail(arena, bytes);
    if (number && arena->chunk[number].owner)
        arena_evict(arena, arena->chunk[number].owner - 1);
    else if (number)
        arena_count_spare(arena, &arena->chunk[number], -1);
    return number;
}

/* A whole chunk that is idle, from the smallest hole that has one; 0: none. */
static uint32_t take_idle(struct arena *arena)
{
    struct allocator *a = arena->segment->allocator;
    struct tree_node *node = NULL;
    if (arena->spares) {
        uint32_t chunk = 1;
        while (!arena->chunk[chunk].booked || arena->chunk[chunk].owner ||
               arena->chunk[chunk].leaving || arena->chunk[chunk].retired ||
               arena->chunk[chunk].bytes < arena->chunk_bytes)
            chunk++;
        arena->spares--;
        return chunk;
    }
    if (!arena->idle_slots)
        return 0;
    uint64_t size = arena->chunk_bytes, address = 0;
    for (;; address = node->minor + 1) {
        node = bins_at_least(&a->pool[POOL_MAPPED], size, address);
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

/* Gives the other slots (*moves) chunks that the driver will map there. Returns how many bytes of
 * those it must make. */
static uint64_t move_in(struct arena *arena, const struct window *window, uint32_t *moves)
{
    uint64_t fresh = 0;
    uint32_t last = 0;
    for (uint32_t slot = window->first; slot < window->end; slot++) {
        struct slot *s = &arena->slot[slot];
        if (arena_is_present(arena, slot))
            continue;
        uint64_t bytes = window_needs(arena, window, slot);
        uint32_t chunk = bytes == window->tail ? take_tail(arena, bytes) : take_idle(arena);
        if (!chunk) {
            chunk = last = number_chunk(arena, last + 1);
            arena->chunk[chunk].bytes = bytes;
            fresh += bytes;
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
    int code = 0;
    for (uint32_t slot = window->first; !code && slot < window->end; slot++) {
        struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
        if (arena->slot[slot].changing && !chunk->handle)
            code = a->ops->chunk_create(a->device, chunk->bytes, &chunk->handle);
    }
    for (*done = window->first; !code && *done < window->end; ++*done) {
        struct slot *s = &arena->slot[*done];
        uint64_t address = arena_address(arena, *done);
        const struct chunk *chunk = &arena->chunk[s->chunk];
        if (s->changing && s->was && !(code = a->ops->chunk_unmap(a->device, address, s->bytes)))
            s->unmapped = 1;
        if (s->changing && !code)
            code = a->ops->chunk_map(a->device, address, chunk->bytes, chunk->handle);
        if (code)
            break;
    }
    return code;
}

/* The same, for what has been mapped: access for the device and its peers. */
static int allow_slots(struct allocator *a, const struct window *window)
{
    const struct arena *arena = a->arena;
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
static void unmap_slots(struct allocator *a, const struct window *window, uint32_t done)
{
    struct arena *arena = a->arena;
    for (uint32_t slot = window->first; slot < done; slot++)
        if (arena->slot[slot].changing && a->ops->chunk_unmap(a->device, arena_address(arena, slot),
                                                              window_needs(arena, window, slot)))
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
            if (chunk->handle)
                arena_count_spare(arena, chunk, 1);
            s->chunk = s->unmapped ? 0 : s->was;
            s->bytes = s->chunk ? s->bytes : 0;
        } else {
            stats_count(a->stats, COUNTER_num_maps, 1);
            chunk->home = chunk->home ? chunk->home : slot + 1;
            s->bytes = chunk->bytes;
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
static int make_usable(struct allocator *a, const struct window *window, uint64_t bytes)
{
    uint32_t done = 0;
    struct block *kit = a->arena->kit;
    uint64_t walks = a->arena->walks;
    a->arena->kit = NULL;
    a->growing_bytes += bytes;
    allocator_call(a);
    int code = map_slots(a, window, &done);
    code = code ? code : allow_slots(a, window);
    if (code)
        unmap_slots(a, window, done);
    allocator_return(a);
    while (!code && !a->forgotten && walks != a->arena->walks) {
        walks = a->arena->walks; /* one that began meanwhile has left out these slots */
        allocator_call(a);
        allow_slots(a, window);
        allocator_return(a);
    }
    a->growing_bytes -= bytes;
    arena_put_kit(a, kit);
    if (a->forgotten)
        return ALLOCATOR_PASS;
    settle_slots(a, window, code != 0);
    return code;
}

/* What the driver has free, where much is wanted: who asks for more than there is would else fill
 * the device with chunks before that is seen, each time; and where it must be known what to give
 * back. The lock is dropped meanwhile. */
static uint64_t room_for(struct allocator *a, uint64_t size, int alone)
{
    uint64_t room = UINT64_MAX, total;
    if (size / a->arena->chunk_bytes < ASK_FROM && !alone)
        return room;
    allocator_call(a);
    if (a->ops->memory_free(a->device, &room, &total))
        room = UINT64_MAX;
    allocator_return(a);
    return room;
}

/* Is there so much room for new chunks? `room`: what the driver has. */
static int has_room(struct allocator *a, uint64_t bytes, uint64_t room)
{
    struct arena *arena = a->arena;
    uint64_t reserved = segment_reserved(a);
    uint64_t below = a->limit > reserved ? a->limit - reserved : 0;
    arena->room = room < below ? room : below;
    arena->missing = bytes > arena->room ? bytes - arena->room : 0;
    return !arena->missing;
}

/* The cheapest window, and may it be had? */
static int choose(struct allocator *a, uint64_t size, int alone, uint64_t room,
                  struct window *window)
{
    struct arena *arena = a->arena;
    uint64_t most = (arena->chunks + size / arena->chunk_bytes) * KEEP;
    most = most < KEEP_LEAST ? KEEP_LEAST : most;
    most = most < arena->slots ? most : arena->slots;
    if (alone && !has_room(a, window_fresh_alone(arena, size), room))
        return 0;
    /* Rather more addresses than no memory. */
    if (!window_find(arena, size, alone, (uint32_t)most, window) &&
        !window_find(arena, size, alone, arena->slots, window))
        return 0;
    return has_room(a, window->fresh, room) && arena->made < arena->slots / 2;
}

enum claim_flags { GROW = 1, ALONE = 2 };

static int claim(struct allocator *a, uint64_t size, int flags, struct block **taken)
{
    struct arena *arena = a->arena;
    struct window chosen, *window = &chosen;
    int code = 0, alone = (flags & ALONE) != 0;
    uint64_t whole = alone ? native_bytes_of(size) : size;
    arena->missing = 0;
    if (size / arena->chunk_bytes > arena->slots / 2)
        return a->ops->out_of_memory;
    uint64_t room = flags & GROW ? room_for(a, size, alone) : 0;
    arena_poll(a);
    if (a->forgotten) /* either drops the lock */
        return ALLOCATOR_PASS;
    if (!choose(a, whole, alone, room, window) ||
        arena_fill_kit(arena, 4 * (window->end - window->first) + 8))
        return a->ops->out_of_memory;
    struct block *block = carve(arena, window, whole);
    arena->top = window->end > arena->top ? window->end : arena->top;
    call_back(arena, window);
    uint32_t moves = 0;
    uint64_t fresh = move_in(arena, window, &moves);
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

int arena_claim(struct allocator *a, uint64_t size, struct block **taken)
{
    return claim(a, size, native_is_exact(a) ? ALONE : 0, taken);
}

/* The work of a device that is not far behind, on a busy host; natively the frees had waited. */
#define MOMENT_NS 20000000

/* What is in the way of a block of its own chunks, and idle in a moment. Returns bytes. */
static uint64_t give_back(struct allocator *a, uint64_t size)
{
    struct arena *arena = a->arena;
    if (arena_idle_bytes(arena) + arena->room >= native_bytes_of(size))
        return arena_release(a, arena->missing, MOMENT_NS);
    thread_caches_empty(a);
    return segment_release_whole(a, arena->missing, MOMENT_NS);
}

#define ROUNDS 4 /* others may take what was given back */

/* Where blocks share no chunk, the last one of each has a size of its own, and idle memory in other
 * pieces may have to go back first; but nobody waits long for that: then chunks are shared after all. */
int arena_grow(struct allocator *a, uint64_t size, struct block **taken)
{
    for (int round = 0; round < ROUNDS && !a->forgotten && native_is_exact(a); round++) {
        int code = claim(a, size, GROW | ALONE, taken);
        if (code != a->ops->out_of_memory)
            return code;
        if (!a->arena->missing || !give_back(a, size))
            break;
    }
    return a->forgotten ? ALLOCATOR_PASS : claim(a, size, GROW, taken);
}
