#include "allocator/mapping/divide.h"

#include <stddef.h>
#include <string.h>

#include "allocator/base/policy.h"
#include "allocator/pool/pool.h"
#include "allocator/pool/arena_blocks.h"
#include "allocator/pool/arena_holes.h"

#define KINDS 64      /* of corners, by size: of each the largest is looked at */
#define REUNITE_KIT 6 /* blocks that one chunk may need to be one again */

/* The largest corners of each kind: ends of chunks, and starts. */
struct corners {
    struct corner end[KINDS], begin[KINDS];
};

static int may_be_divided(const struct arena *arena, uint32_t slot)
{
    const struct slot *s = &arena->slot[slot];
    return arena_is_present(arena, slot) && !s->changing && !s->pinned &&
           arena->chunk[s->chunk].span == 1 && !arena->chunk[s->chunk].second;
}

static void note(const struct arena *arena, struct corner *corners, const struct corner *corner)
{
    struct corner *known = &corners[corner->bytes * KINDS / CHUNK_BYTES];
    if (may_be_divided(arena, corner->slot) && corner->bytes > known->bytes)
        *known = *corner;
}

static void find_in(const struct arena *arena, struct block *block, struct corners *corners)
{
    uint64_t c = CHUNK_BYTES, page = arena->allocator->domain->options.page_bytes;
    for (; block; block = block->next) {
        if (block->state != BLOCK_REUSABLE || block->pinned)
            continue;
        uint64_t begin = block_address(block) - arena->base, end = begin + block_size(block);
        /* A block begins at the end of a chunk: on a page, which small blocks do not keep to. */
        const struct corner first = {block, (c - begin % c) % c & ~(page - 1),
                                     (uint32_t)arena_slot_at(begin)};
        const struct corner last = {block, end % c, (uint32_t)arena_slot_at(end)};
        if (first.bytes && block_size(block) >= first.bytes)
            note(arena, corners->end, &first);
        if (last.bytes && block_size(block) >= last.bytes)
            note(arena, corners->begin, &last);
    }
}

static void find_corners(const struct arena *arena, struct corners *corners)
{
    *corners = (struct corners){0};
    for (enum stat_pool pool = 0; pool < STAT_POOLS; pool++)
        if (arena->part[pool].segment)
            find_in(arena, arena->part[pool].segment->first, corners);
}

/* Takes these corners for the window, if they are best: they need the least new memory. Of those
 * that need as little, the best take the least memory in all. */
static void consider(const struct arena *arena, uint64_t size, const struct corner *front,
                     const struct corner *back, struct window *window)
{
    uint64_t c = CHUNK_BYTES, bytes = front->bytes + back->bytes;
    uint64_t have = arena->free.slots + arena->free.spares;
    uint64_t whole = bytes < size ? (size - bytes + c - 1) / c : 0;
    uint64_t fresh = whole > have ? (whole - have) * c : 0;
    uint64_t cost = bytes + whole * c;
    if (!bytes || front->bytes >= size || back->bytes >= size ||
        (front->bytes && back->bytes && front->slot == back->slot) || fresh > window->fresh ||
        (fresh == window->fresh && cost >= window->cost))
        return;
    *window = (struct window){.fresh = fresh, .cost = cost, .front = *front, .back = *back};
    window->end = (uint32_t)whole + (front->bytes != 0) + (back->bytes != 0); /* from slot 0 */
}

/* Moves the window from slot 0 to the lowest absent slots that have room. Returns 0 if there are
 * none. */
static int place(const struct arena *arena, struct window *window)
{
    const struct arena_part *part = &arena->part[LARGE_POOL];
    uint32_t run = 0, slot = part->first;
    for (; slot < part->end && run < window->end; slot++)
        run = !arena_is_present(arena, slot) && arena_may_remap(arena, slot) ? run + 1 : 0;
    if (run < window->end)
        return 0;
    window->first = window->low = slot - run;
    window->end = window->high = slot;
    window->begin = arena_address(arena, window->first);
    window->begin += window->front.bytes ? CHUNK_BYTES - window->front.bytes : 0;
    return 1;
}

int arena_find_divided(const struct arena *arena, uint64_t size, struct window *window)
{
    static const struct corner none;
    struct corners corners;
    struct window best = {.fresh = window->fresh};
    find_corners(arena, &corners);
    for (unsigned i = 0; i <= KINDS; i++)
        for (unsigned j = 0; j <= KINDS; j++)
            consider(arena, size, i < KINDS ? &corners.end[i] : &none,
                     j < KINDS ? &corners.begin[j] : &none, &best);
    if (!best.end || !place(arena, &best))
        return 0;
    *window = best;
    return 1;
}

/* Moves the bytes [low, high) of the corner's chunk into slot `to`. */
static void lend(struct arena *arena, struct window *window, const struct corner *corner,
                 uint32_t to, uint64_t low, uint64_t high, uint32_t *moves)
{
    uint64_t here = arena_address(arena, corner->slot), there = arena_address(arena, to);
    uint32_t number = arena->slot[corner->slot].chunk;
    struct slot *s = &arena->slot[to];
    struct block *left = arena_isolate(arena, corner->hole, here + low, here + high);
    struct block *part =
        arena_isolate(arena, arena_absent_at(arena, to), there, there + CHUNK_BYTES);
    struct block *gap = low ? part : arena_cut(arena, part, high + there);
    part = low ? arena_cut(arena, part, low + there) : part;
    left->state = gap->state = BLOCK_ELSEWHERE;
    arena->slot[corner->slot].hole = left;
    s->hole = gap;
    if (s->chunk != number) {
        if (s->chunk)
            arena_displace(arena, window, to);
        s->chunk = number;
        s->changing = 1;
        ++*moves;
    }
    arena->chunk[number].second = to + 1;
    arena->present[to] = DIVIDED;
    arena->divided++;
    arena_put(part, BLOCK_REUSABLE);
}

uint32_t arena_divide(struct arena *arena, struct window *window)
{
    struct corner *front = &window->front, *back = &window->back;
    uint64_t c = CHUNK_BYTES;
    uint32_t moves = 0;
    if (front->bytes) {
        lend(arena, window, front, window->first, c - front->bytes, c, &moves);
        if (back->hole == front->hole) /* of it, only the part behind that corner is left */
            back->hole = arena->slot[front->slot].hole->next;
        window->from = arena->slot[window->first].hole->next;
    }
    if (back->bytes)
        lend(arena, window, back, window->end - 1, 0, back->bytes, &moves);
    if (!front->bytes)
        window->from = arena_absent_at(arena, window->first);
    return moves;
}

void arena_undivide(struct arena *arena, uint32_t slot)
{
    struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
    uint32_t from = chunk->owner - 1;
    struct block *left = arena->slot[from].hole, *gap = arena->slot[slot].hole;
    chunk->second = 0;
    arena->divided--;
    arena->present[slot] = NOT_PRESENT;
    arena->slot[slot].pinned = 0;
    gap->pinned = 0;
    arena_put(gap, BLOCK_ABSENT);
    left->pinned = arena->slot[from].pinned != 0;
    left = arena_put(left, BLOCK_REUSABLE);
    if (left->pinned)
        arena_retire(left);
}

/* Returns the reusable block that has all of the slot but what is elsewhere; NULL if there is
 * none. */
static struct block *rest_of(const struct arena *arena, uint32_t slot)
{
    struct block *gap = arena->slot[slot].hole;
    uint64_t begin = arena_address(arena, slot), end = begin + CHUNK_BYTES;
    struct block *rest = block_address(gap) == begin ? gap->next : gap->previous;
    if (!rest || rest->state != BLOCK_REUSABLE)
        return NULL;
    return rest == gap->next ? (block_end(rest) >= end ? rest : NULL)
                             : (block_address(rest) <= begin ? rest : NULL);
}

static void reunite(struct arena *arena, uint32_t to)
{
    uint32_t from = arena_other_slot(arena, to);
    struct block *part = rest_of(arena, to), *gap = arena->slot[to].hole;
    if (!part || !rest_of(arena, from) || arena_fill_kit(arena, REUNITE_KIT))
        return;
    uint64_t begin = arena_address(arena, to), end = begin + CHUNK_BYTES;
    part = part == gap->next ? arena_isolate(arena, part, block_address(part), end)
                             : arena_isolate(arena, part, begin, block_end(part));
    block_join(gap, part);
    arena->slot[to].since = arena->left.epoch;
    arena_undivide(arena, to);
    arena_go_home(arena, arena_address(arena, from), arena_address(arena, from + 1));
}

void arena_reunite(struct arena *arena)
{
    uint32_t slot = 0, top = arena->part[LARGE_POOL].top;
    const uint8_t *divided;
    while (arena->divided && slot < top &&
           (divided = memchr(arena->present + slot, DIVIDED, top - slot))) {
        slot = (uint32_t)(divided - arena->present);
        reunite(arena, slot++);
    }
}
