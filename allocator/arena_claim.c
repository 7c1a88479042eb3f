/* Claims: a block of an arena is made where no hole is large enough.
 *
 * A window is a run of reusable and absent blocks. Of all that are long enough the cheapest is
 * taken: the one that needs the least new memory, then the least idle memory, and then the fewest
 * calls of the driver. A slot of it costs nothing if its memory is present, or if the chunk that
 * was mapped here before is idle where it is now: it is called back. Otherwise some chunk that is
 * idle is mapped here, one that is made of the older arena's, or a new one. What was mapped here
 * before is taken down first, if work that may use it has passed; as long as there are few mappings
 * the windows beyond the last slot used are cheaper. So addresses are spent (KEEP times the memory) until what the program repeats has
 * addresses of its own.
 *
 * All is decided and booked under the lock, the driver is called without it: the block is claimed
 * meanwhile, and its slots are changing. */
#include <assert.h>
#include <stddef.h>

#include "allocator/arena_map.h"
#include "allocator/native.h"
#include "allocator/pool.h"
#include "allocator/segment.h"

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

/* Is the chunk that was mapped in a slot of the window idle where it is? */
static int comes_back(const struct arena *arena, const struct window *window, uint32_t slot)
{
    uint32_t chunk = arena->slot[slot].chunk;
    return chunk && !arena_is_present(arena, slot) && window_chunk_is_idle(arena, chunk) &&
           arena->chunk[chunk].bytes == window_needs(arena, window, slot);
}

static uint32_t owner_of(const struct arena *arena, uint32_t slot)
{
    return arena->chunk[arena->slot[slot].chunk].owner;
}

/* Gives slots the chunks that were mapped there, where those are idle; what lies side by side, as
 * one. */
static void call_back(struct arena *arena, const struct window *window)
{
    for (uint32_t slot = window->first, end; slot < window->end; slot = end) {
        end = slot + 1;
        if (!comes_back(arena, window, slot))
            continue;
        uint32_t owner = owner_of(arena, slot);
        while (owner && end < window->end && owner_of(arena, end) == owner + end - slot &&
               comes_back(arena, window, end))
            end++;
        if (owner)
            arena_evict(arena, owner - 1, owner - 1 + end - slot);
        else
            arena_count_spare(arena, &arena->chunk[arena->slot[slot].chunk], -1);
        for (uint32_t at = slot; at < end; at++) {
            arena_own(arena, arena->slot[at].chunk, at);
            arena_give_home(arena, arena->slot[at].chunk, at);
        }
    }
}

/* A tail that is idle; 0: none. */
static uint32_t take_tail(struct arena *arena, uint64_t bytes)
{
    uint32_t number = window_idle_tail(arena, bytes);
    if (number && arena->chunk[number].owner)
        arena_evict(arena, arena->chunk[number].owner - 1, arena->chunk[number].owner);
    else if (number)
        arena_count_spare(arena, &arena->chunk[number], -1);
    return number;
}

/* The smallest hole of a pool that has a whole idle slot; *slot: the first such. */
static struct tree_node *idle_hole(const struct arena *arena, enum pool pool, uint32_t *slot)
{
    uint64_t size = arena->chunk_bytes, address = 0;
    struct tree_node *node;
    while ((node = bins_at_least(&arena->allocator->pool[pool], size, address))) {
        size = node->major;
        address = node->minor + 1;
        if (block_of_node(node)->segment->arena != arena)
            continue;
        *slot =
            (uint32_t)((node->minor - arena->base + arena->chunk_bytes - 1) / arena->chunk_bytes);
        if (arena_address(arena, *slot + 1) <= node->minor + node->major)
            break;
    }
    return node;
}

/* A whole chunk that is idle, from the smallest hole that has one; 0: none. */
static uint32_t take_idle(struct arena *arena)
{
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
    uint32_t slot = 0, other = 0;
    const struct tree_node *large = idle_hole(arena, POOL_MAPPED, &slot);
    const struct tree_node *small = idle_hole(arena, POOL_SMALL, &other);
    if (small && (!large || small->major < large->major))
        slot = other;
    uint32_t chunk = arena->slot[slot].chunk;
    arena_evict(arena, slot, slot + 1);
    return chunk;
}

/* The number of a chunk that has yet to be made, from `least` on, below which this claim has taken
 * what is free. */
static uint32_t number_chunk(struct arena *arena, uint32_t least)
{
    uint32_t chunk = least < arena->unused ? arena->unused : least;
    while (chunk <= arena->made &&
           (arena->chunk[chunk].booked || arena->chunk[chunk].owner || arena->chunk[chunk].part_of))
        chunk++;
    if (chunk > arena->made)
        arena->made = chunk;
    if (least == 1)
        arena->unused = chunk;
    return chunk;
}

/* Of what is idle in the older arena, what the claim may have. */
static uint64_t gatherable(const struct arena *arena, int flags)
{
    return flags & (CLAIM_GROW | CLAIM_GATHER) ? arena_gatherable(arena) : 0;
}

/* A chunk that is made of idle ones of the older arena. */
static uint32_t gather(struct arena *arena, uint32_t last)
{
    struct arena *older = arena->older;
    uint32_t number = number_chunk(arena, last + 1);
    for (uint64_t bytes = 0; bytes < arena->chunk_bytes; bytes += older->chunk_bytes)
        arena_compose(arena, number, take_idle(older));
    arena_note_idle(older);
    return number;
}

/* Gives the other slots (*moves) chunks that the driver will map there. Returns how many bytes of
 * those it must make. */
static uint64_t move_in(struct arena *arena, const struct window *window, int flags,
                        uint32_t *moves)
{
    uint64_t fresh = 0;
    uint32_t last = 0;
    for (uint32_t slot = window->first; slot < window->end; slot++) {
        struct slot *s = &arena->slot[slot];
        if (arena_is_present(arena, slot))
            continue;
        uint64_t bytes = window_needs(arena, window, slot);
        uint32_t chunk = bytes == window->tail ? take_tail(arena, bytes) : take_idle(arena);
        if (!chunk && bytes == arena->chunk_bytes && gatherable(arena, flags))
            chunk = gather(arena, last);
        if (!chunk) {
            chunk = last = number_chunk(arena, last + 1);
            arena->chunk[chunk].bytes = bytes;
            fresh += bytes;
        }
        arena_own(arena, chunk, slot);
        ++*moves;
        s->changing = 1;
        s->was = s->chunk;
        if (s->was)
            arena_leave_home(arena, s->was, slot);
        s->chunk = chunk;
    }
    return fresh;
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
        if (!present)
            block->pinned = 0; /* meanwhile, because of a neighbour */
        block = arena_put(block, present ? BLOCK_REUSABLE : BLOCK_ABSENT);
        if (block->pinned)
            arena_retire(block);
    }
    arena_go_home(arena, begin, until);
}

/* What the driver has free, where much is wanted: who asks for more than there is would else fill
 * the device with chunks before that is seen, each time; and where it must be known what to give
 * back. The lock is dropped meanwhile. */
static uint64_t room_for(struct allocator *a, const struct arena *arena, uint64_t size, int alone)
{
    uint64_t room = UINT64_MAX, total;
    if (size / arena->chunk_bytes < ASK_FROM && !alone)
        return room;
    allocator_call(a);
    if (a->ops->memory_free(a->device, &room, &total))
        room = UINT64_MAX;
    allocator_return(a);
    return room;
}

/* Is there so much room for new chunks? `room`: what the driver has. */
static int has_room(const struct allocator *a, struct arena *arena, uint64_t bytes, uint64_t room)
{
    uint64_t reserved = segment_reserved(a);
    uint64_t below = a->limit > reserved ? a->limit - reserved : 0;
    arena->room = room < below ? room : below;
    arena->missing = bytes > arena->room ? bytes - arena->room : 0;
    return !arena->missing;
}

/* What must be made of `fresh` bytes, if so many can be gathered: tails cannot. */
static uint64_t to_make(const struct arena *arena, uint64_t fresh, uint64_t gathered)
{
    uint64_t whole = fresh / arena->chunk_bytes * arena->chunk_bytes;
    return fresh - (gathered < whole ? gathered : whole);
}

/* In reserve for all that is cut. */
static int fill_kits(struct arena *arena, const struct window *window, int flags)
{
    uint64_t slots = window->end - window->first, more = gatherable(arena, flags);
    more = more < slots * arena->chunk_bytes ? more : slots * arena->chunk_bytes;
    return arena_fill_kit(arena, (unsigned)(4 * slots + 8)) ||
           (more && arena_fill_kit(arena->older, (unsigned)(2 * more / arena->older->chunk_bytes)));
}

/* The cheapest window, and may it be had? */
static int choose(const struct allocator *a, struct arena *arena, uint64_t size, int flags,
                  uint64_t room, struct window *window)
{
    const struct arena_part *part = arena_part_for(arena, size);
    int alone = (flags & CLAIM_ALONE) != 0;
    uint64_t gathered = gatherable(arena, flags);
    uint64_t most = (part->chunks + size / arena->chunk_bytes) * KEEP;
    most = part->first + (most < KEEP_LEAST ? KEEP_LEAST : most);
    most = most < part->end ? most : part->end;
    if (alone &&
        !has_room(a, arena, to_make(arena, window_fresh_alone(arena, size), gathered), room))
        return 0;
    /* Rather more addresses than no memory. */
    if (!window_find(arena, size, alone, (uint32_t)most, window) &&
        !window_find(arena, size, alone, part->end, window))
        return 0;
    return has_room(a, arena, to_make(arena, window->fresh, gathered), room) &&
           arena->made < arena->slots / 2;
}

/* A block of `size` bytes, in no pool, of this arena; the lock is dropped meanwhile. */
int arena_claim_in(struct arena *arena, uint64_t size, int flags, struct block **taken)
{
    struct allocator *a = arena->allocator;
    struct arena_part *part = arena_part_for(arena, size);
    struct window chosen, *window = &chosen;
    int code = 0, alone = (flags & CLAIM_ALONE) != 0;
    uint64_t whole = alone ? native_bytes_of(size) : size;
    arena->missing = 0;
    if (size / arena->chunk_bytes > (part->end - part->first) / 2)
        return a->ops->out_of_memory;
    uint64_t room = flags & CLAIM_GROW ? room_for(a, arena, size, alone) : 0;
    if (!a->forgotten)
        arena_poll(a, arena);
    if (a->forgotten) /* either drops the lock */
        return ALLOCATOR_PASS;
    if (!choose(a, arena, whole, flags, room, window) || fill_kits(arena, window, flags))
        return a->ops->out_of_memory;
    struct block *block = carve(arena, window, whole);
    part->top = window->end > part->top ? window->end : part->top;
    call_back(arena, window);
    uint32_t moves = 0;
    uint64_t fresh = move_in(arena, window, flags, &moves);
    arena_note_idle(arena);
    if (moves && (code = arena_make_usable(a, arena, window, fresh))) {
        if (code > 0)
            dissolve(arena, block);
        return code;
    }
    if (block_size(block) > size)
        arena_put(arena_cut(arena, block, block_address(block) + size), BLOCK_REUSABLE);
    *taken = block;
    return 0;
}
