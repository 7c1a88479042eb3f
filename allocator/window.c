/* Which window is taken: head of arena_claim.c. The windows of all runs of reusable and absent
 * blocks are looked at, slot by slot, from the lowest on, until none can be cheaper; holes are found
 * from the first slot of each absent block. */
#include "allocator/window.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* us, as design/measured.md has them; a call back costs nothing, but moves things */
#define COST_RECALL 1
#define COST_MAP 34
#define COST_UNMAP 22
/* for as many addresses as the part has memory: of two places that cost the same the lower one, so
 * that blocks lie close together, and chunks further up become idle as a whole */
#define COST_REACH (COST_MAP + COST_UNMAP)

struct sum {
    uint64_t cost, blocked, moved, clashes; /* moved: slots that need another handle */
};

struct search {
    struct arena *arena;
    uint64_t size;
    int alone;            /* begins with a slot, and ends with a chunk */
    uint64_t tail, fresh; /* alone: what all windows need */
    struct supply supply;
    uint32_t first, most;   /* slots from the one to below the other may be used */
    uint32_t top;           /* the last one where a window may begin */
    uint64_t memory;        /* in slots */
    uint64_t asked, answer; /* the last of cost_of_moves */
    struct window best;
};

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
    const uint8_t *idle;
    *supply = (struct supply){0};
    for (uint32_t slot = arena_used(arena, 0); slot < arena->slots;
         slot = arena_used(arena, slot)) {
        uint32_t top = arena->part[arena_pool_of(arena, slot)].top;
        idle = memchr(arena->idle + slot, 1, top - slot);
        slot = idle ? (uint32_t)(idle - arena->idle) : top;
        if (idle && arena_present(arena, slot) == arena->chunk_bytes)
            supply->of[arena->chunk[arena->slot[slot].chunk].span]++;
        slot = idle ? arena_handle_end(arena, slot) : slot;
    }
    for (uint32_t number = 1; arena->spares && number <= arena->made; number++)
        if (window_is_spare(arena, number) && arena_is_first(arena, number))
            supply->of[arena->chunk[number].span]++;
}

#define NEVER UINT64_MAX
#define MOVED 128 /* beside what it costs: it needs another handle */

/* What a slot costs in a window that needs a chunk of `bytes` there. */
static uint64_t cost_of(const struct search *search, uint32_t slot, uint64_t bytes)
{
    const struct arena *arena = search->arena;
    const struct slot *s = &arena->slot[slot];
    int first = !arena->joined[slot]; /* a handle costs once */
    if (arena_is_present(arena, slot)) {
        int has_tail = search->tail || arena->tails;
        int fits = !has_tail || arena_present(arena, slot) == bytes;
        return fits && !(search->alone && !arena->idle[slot]) ? 0 : NEVER;
    }
    if (s->changing || s->allowing || slot >= search->most)
        return NEVER;
    if (!s->chunk)
        return MOVED;
    if (arena->chunk[s->chunk].bytes == bytes && window_chunk_is_idle(arena, s->chunk))
        return first ? COST_RECALL : 0;
    if (s->since > arena->safe)
        return NEVER;
    return MOVED + (first ? COST_UNMAP : 0);
}

_Static_assert(MOVED + COST_UNMAP < (uint8_t)NEVER, "a slot's cost is a byte");

/* What the window wants back, but another part of it has, too, or it is there itself: of each handle all
 * but one must be moved. */
static uint64_t clashes_of(const struct chunk *first)
{
    return first->wanted ? first->wanted - 1U + first->there : 0;
}

/* The handle in a slot that would come back, or is idle there, is one of the window's (1), or no more (-1). */
static void count_handle(const struct search *search, struct sum *sum, uint32_t slot, int sign)
{
    struct arena *arena = search->arena;
    struct chunk *handle = &arena->chunk[arena->chunk[arena->slot[slot].chunk].first];
    if (handle->seen != arena->runs)
        handle->wanted = handle->there = 0;
    handle->seen = arena->runs;
    assert(sign > 0 || (arena_is_present(arena, slot) ? handle->there : handle->wanted));
    sum->clashes -= clashes_of(handle);
    if (arena_is_present(arena, slot))
        handle->there = (uint16_t)(handle->there + sign);
    else
        handle->wanted = (uint16_t)(handle->wanted + sign);
    sum->clashes += clashes_of(handle);
}

/* Is there such a handle in a slot whose cost the search has? */
static int counts_handle(const struct arena *arena, uint32_t slot)
{
    return arena->cost[slot] < MOVED && (arena->idle[slot] || !arena_is_present(arena, slot));
}

/* Adds a slot behind the window from `first` on; takes the first one off that below `end`. A handle counts once,
 * however much of it the window has. */
static void add(const struct search *search, struct sum *sum, uint32_t slot, uint32_t first)
{
    struct arena *arena = search->arena;
    uint64_t cost = cost_of(search, slot, arena->chunk_bytes);
    arena->cost[slot] = (uint8_t)cost;
    if (cost == NEVER) {
        sum->blocked++;
        return;
    }
    sum->cost += cost % MOVED;
    sum->moved += cost / MOVED;
    if (counts_handle(arena, slot) && (slot == first || !arena->joined[slot]))
        count_handle(search, sum, slot, 1);
}

static void take_off(const struct search *search, struct sum *sum, uint32_t slot, uint32_t end)
{
    struct arena *arena = search->arena;
    uint8_t cost = arena->cost[slot];
    if (cost == (uint8_t)NEVER) {
        sum->blocked--;
        return;
    }
    sum->cost -= cost % MOVED;
    sum->moved -= cost / MOVED;
    if (counts_handle(arena, slot) && (slot + 1 == end || !arena->joined[slot + 1]))
        count_handle(search, sum, slot, -1);
}

/* us to map so many slots, with the largest handles that there are. */
static uint64_t cost_of_moves(struct search *search, uint64_t slots)
{
    uint64_t handles = 0;
    if (slots == search->asked)
        return search->answer;
    search->asked = slots;
    for (uint64_t span = SPANS_MOST; span && slots; span--) {
        uint64_t most =
            slots / span < search->supply.of[span] ? slots / span : search->supply.of[span];
        handles += most;
        slots -= most * span;
    }
    return search->answer = (handles + (slots != 0)) * COST_MAP;
}

#define COST_CLASH (COST_MAP + COST_UNMAP - COST_RECALL)

/* Would a handle that clashes be taken down where work may still use it? The first part of the window that
 * it comes back to has it, if it is not there already. */
static int takes_down_unsafe(struct arena *arena, const struct window *window)
{
    uint32_t end = window->end - (window->tail != 0); /* one tail is wanted, so none clashes */
    arena->looks++;
    for (uint32_t slot = window->first; slot < end; slot++) {
        const struct slot *s = &arena->slot[slot];
        if (arena_is_present(arena, slot) || arena->cost[slot] >= MOVED ||
            (arena->joined[slot] && slot > window->first))
            continue;
        struct chunk *handle = &arena->chunk[arena->chunk[s->chunk].first];
        if ((handle->there || handle->met == arena->looks) && s->since > arena->safe)
            return 1;
        handle->met = arena->looks;
    }
    return 0;
}

static int is_whole(const struct arena *arena, uint32_t slot)
{
    return !arena_is_present(arena, slot) || arena->idle[slot];
}

uint64_t window_fresh_alone(const struct arena *arena, uint64_t size)
{
    uint64_t needed = size / arena->chunk_bytes, have = arena->idle_slots + arena->spares;
    uint64_t tail = size % arena->chunk_bytes;
    return (needed > have ? needed - have : 0) * arena->chunk_bytes +
           (tail && !window_idle_tail(arena, tail) ? tail : 0);
}

/* Bytes that the driver must make for a window. */
static uint64_t fresh_for(const struct search *search, const struct window *window)
{
    const struct arena *arena = search->arena;
    uint64_t needed = window->end - window->first, have = arena->idle_slots + arena->spares;
    if (search->alone)
        return search->fresh;
    /* The slots at both ends may be shared with neighbours, and present. */
    needed -= !is_whole(arena, window->first);
    if (window->end - window->first > 1)
        needed -= !is_whole(arena, window->end - 1);
    return needed > have ? (needed - have) * arena->chunk_bytes : 0;
}

/* What the addresses of a window from `slot` on cost. Costs are in calls times slots of memory. */
static uint64_t reach(const struct search *search, uint32_t slot)
{
    return COST_REACH * (uint64_t)(slot - search->first);
}

/* Has it a part of a handle that is idle, or would be called back? */
static int cuts_handle(const struct arena *arena, const struct window *window)
{
    uint32_t first = window->first, last = window->end - 1;
    uint32_t begins = arena->slot[first].chunk, ends = arena->slot[last].chunk;
    return (begins && arena_handle_at(arena, first) < first &&
            window_chunk_is_idle(arena, begins)) ||
           (ends && arena_handle_end(arena, last) > last + 1 && window_chunk_is_idle(arena, ends));
}

/* The window of slots [first, end) that begins at `begin` in block `from`; `cost`: without tail. */
static void consider(struct search *search, const struct window *window, const struct sum *sum)
{
    struct arena *arena = search->arena;
    struct window *best = &search->best;
    if (arena->joined[window->first] && arena->idle[window->first])
        return; /* it would take a part of what could be moved */
    if (search->alone && cuts_handle(arena, window))
        return;
    uint64_t tail = search->tail ? cost_of(search, window->end - 1, search->tail) : 0, cost;
    if (tail == NEVER)
        return;
    uint64_t fresh = fresh_for(search, window);
    cost = (sum->cost + tail % MOVED + tail / MOVED * COST_MAP) * search->memory +
           reach(search, window->first);
    if (best->from && fresh == best->fresh && cost >= best->cost)
        return;
    cost += (cost_of_moves(search, sum->moved) + sum->clashes * COST_CLASH) * search->memory;
    if (best->from && (fresh > best->fresh || (fresh == best->fresh && cost >= best->cost)))
        return;
    if (sum->clashes && takes_down_unsafe(arena, window))
        return;
    *best = *window;
    best->fresh = fresh;
    best->cost = cost;
}

/* Can no window from `slot` on be cheaper than the best one? For its address alone costs as much. */
static int is_beaten(const struct search *search, uint32_t slot)
{
    const struct window *best = &search->best;
    return best->from && best->fresh <= search->fresh && best->cost <= reach(search, slot);
}

/* All windows of the run of blocks [from, run_end) that may be cheaper. */
static void search_run(struct search *search, struct block *from, uint64_t run_end)
{
    struct arena *arena = search->arena;
    struct sum sum = {0};
    arena->runs++;
    uint64_t c = arena->chunk_bytes, begin = block_address(from);
    uint32_t first = (uint32_t)((begin - arena->base) / c), end;
    if (search->alone && begin > arena_address(arena, first))
        begin = arena_address(arena, ++first);
    for (end = first;
         begin + search->size <= run_end && first <= search->top && !is_beaten(search, first);
         begin = arena_address(arena, first)) {
        while (block_end(from) <= begin)
            from = from->next;
        uint32_t until =
            (uint32_t)((begin + search->size - search->tail - arena->base + c - 1) / c);
        while (end < until) {
            add(search, &sum, end, first);
            end++;
        }
        const struct window window = {.from = from,
                                      .begin = begin,
                                      .first = first,
                                      .end = end + (search->tail != 0),
                                      .low = first,
                                      .high = end + (search->tail != 0),
                                      .tail = search->tail};
        if (!sum.blocked)
            consider(search, &window, &sum);
        if (first < end)
            take_off(search, &sum, first, end);
        else
            end++; /* no more than a tail */
        first++;
    }
}

static int is_hole(const struct block *block)
{
    return block && !block->pinned &&
           (block->state == BLOCK_REUSABLE || block->state == BLOCK_ABSENT);
}

/* Each run with an absent block in it is searched once. */
int window_find(struct arena *arena, uint64_t size, int alone, uint32_t most, struct window *window)
{
    const struct arena_part *part = arena_part_for(arena, size);
    struct search search = {.arena = arena,
                            .size = size,
                            .alone = alone,
                            .first = part->first,
                            .most = most,
                            .top = part->top,
                            .memory = part->chunks ? part->chunks : 1};
    window_supply(arena, &search.supply);
    search.tail = alone ? size % arena->chunk_bytes : 0;
    search.fresh = alone ? window_fresh_alone(arena, size) : 0;
    uint32_t end = part->top < part->end ? part->top + 1 : part->end;
    const uint8_t *absent;
    for (uint32_t slot = part->first;
         slot < end && (absent = memchr(arena->present + slot, NOT_PRESENT, end - slot));) {
        slot = (uint32_t)(absent - arena->present);
        struct block *from = arena->slot[slot].hole, *last = from;
        assert(from->state == BLOCK_ABSENT);
        if (is_hole(from->previous))
            from = from->previous;
        if (is_beaten(&search, (uint32_t)arena_slot_at(arena, block_address(from) - arena->base)))
            break;
        while (is_hole(last->next))
            last = last->next;
        search_run(&search, from, block_end(last));
        slot = (uint32_t)((block_end(last) - arena->base) / arena->chunk_bytes);
        slot += slot < part->end && !arena->idle[slot] && arena_is_present(arena, slot);
    }
    *window = search.best;
    return search.best.from != NULL;
}
