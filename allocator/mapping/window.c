/* Which window a claim takes (head of claim.c). The search looks at all windows in all runs of
 * reusable and absent blocks. It goes slot by slot, from the lowest on, until no window can be
 * cheaper. It finds holes from the first slot of each absent block. */
#include "allocator/mapping/window.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Prices in us (device.h), rounded, so that windows of about the same price count as equal. */
struct prices {
    uint64_t call[4]; /* of the driver's calls for a slot, by RECALL and UNMAP */
    uint64_t map;
    /* Of as many addresses as the part has memory. Of two windows of one price the lower one is
     * taken. So blocks lie close together, and chunks further up become idle as a whole. */
    uint64_t reach;
    uint64_t clash; /* of a handle that two slots want back */
};

int window_chunk_is_idle(const struct arena *arena, uint32_t chunk)
{
    const struct chunk *c = &arena->chunk[chunk];
    return !c->leaving && !c->retired && (!c->owner || arena->idle[c->owner - 1]);
}

int window_is_spare(const struct arena *arena, uint32_t number)
{
    const struct chunk *chunk = &arena->chunk[number];
    return chunk->booked && !chunk->owner && !chunk->leaving && !chunk->retired;
}

void window_supply(const struct arena *arena, struct supply *supply)
{
    *supply = (struct supply){0};
    for (uint32_t slot = arena_next_idle(arena, 0); slot < arena->slots;
         slot = arena_next_idle(arena, arena_handle_end(arena, slot)))
        supply->of[arena->chunk[arena->slot[slot].chunk].span]++;
    for (uint32_t number = 1; arena->free.spares && number <= arena->made; number++)
        if (window_is_spare(arena, number) && arena_is_first(arena, number))
            supply->of[arena->chunk[number].span]++;
}

uint64_t window_fresh_alone(const struct arena *arena, uint64_t size)
{
    uint64_t have = arena_idle_bytes(arena);
    return size > have ? size - have : 0;
}

struct sum {
    uint64_t cost, moved, clashes; /* moved: slots that need another handle */
    uint32_t unsafe; /* windows that begin before this slot unmap what work may still use */
};

struct search {
    struct arena *arena;
    struct prices prices;
    uint64_t size;
    int alone;              /* the block begins with a slot, and ends with a chunk */
    uint64_t fresh;         /* alone: the same for all windows */
    struct supply supply;   /* filled when it is first needed */
    uint32_t top;           /* nothing was ever mapped from this slot on */
    uint32_t first, most;   /* windows may use slots [first, most) */
    uint32_t stop;          /* no window that begins here or later can be cheaper than the best */
    uint64_t memory;        /* of the part, in slots */
    uint64_t asked, answer; /* last argument and result of cost_of_moves */
    struct window best;
};

/* The cost of a slot in a window, in a byte. */
enum {
    RECALL = 1,  /* its handle is called back: no call of the driver, but a move (1 us) */
    UNMAP = 2,   /* what is mapped there is taken down */
    CALLS = 3,   /* either */
    COUNTS = 64, /* its handle would come back there, or is idle there: no other part may want it */
    MOVED = 128, /* it needs another handle */
    NEVER = 255, /* it may be in no window */
};

static struct prices prices_of(const struct device_costs *costs)
{
    uint64_t map = device_us(costs->map + costs->access), unmap = device_us(costs->unmap);
    return (struct prices){
        .call = {[RECALL] = 1, [UNMAP] = unmap},
        .map = map,
        .reach = map + unmap,
        .clash = map + unmap - 1,
    };
}

/* Returns the cost of a slot in a window. */
static uint8_t cost_of(const struct search *search, uint32_t slot)
{
    const struct arena *arena = search->arena;
    if (slot >= search->top) /* not even read: those pages may never be needed */
        return slot < search->most ? MOVED : NEVER;
    const struct slot *s = &arena->slot[slot];
    int first = !arena->joined[slot]; /* a handle costs once */
    if (arena_is_present(arena, slot)) {
        if (arena->idle[slot])
            return COUNTS;
        return search->alone ? NEVER : 0;
    }
    if (s->changing || s->allowing || slot >= search->most)
        return NEVER;
    if (!s->chunk)
        return MOVED;
    if (window_chunk_is_idle(arena, s->chunk))
        return COUNTS + (first ? RECALL : 0);
    if (s->since > arena->left.safe)
        return NEVER;
    return MOVED + (first ? UNMAP : 0);
}

/* Notes the cost of the slot, and of all slots of the handle mapped there: a handle moves as one,
 * and costs once. Returns the slot behind them. */
static uint32_t note_costs(const struct search *search, uint32_t slot)
{
    struct arena *arena = search->arena;
    uint8_t cost = cost_of(search, slot);
    int is_mapped = slot < search->top && arena->slot[slot].chunk;
    uint32_t end = is_mapped ? arena_handle_end(arena, slot) : slot + 1;
    if (slot < search->most && end > search->most)
        end = search->most;
    arena->cost[slot++] = cost;
    if (slot < end)
        memset(arena->cost + slot, cost == NEVER ? NEVER : cost & ~CALLS, end - slot);
    return end;
}

/* Returns how many parts of the window want the handle back and cannot have it. These are all but
 * one, or all if the handle is idle in the window already. */
static uint64_t clashes_of(const struct chunk *first)
{
    return first->wanted ? first->wanted - 1U + first->there : 0;
}

/* Counts a handle that is idle in a slot of the window, or would come back there (1), or no longer
 * (-1). Returns how many more parts clash. */
static uint64_t count_handle(const struct arena *arena, struct chunk *handle, int present, int sign)
{
    if (handle->seen != arena->claim.runs) {
        handle->there = 0;
        handle->wanted = 0;
        handle->wanted_end = handle->unsafe_end = 0;
    }
    handle->seen = arena->claim.runs;
    assert(sign > 0 || (present ? handle->there : handle->wanted));
    uint64_t before = clashes_of(handle);
    if (present)
        handle->there = (uint8_t)(handle->there + sign);
    else
        handle->wanted = (uint16_t)(handle->wanted + sign);
    return clashes_of(handle) - before;
}

static struct chunk *handle_in(const struct arena *arena, uint32_t slot)
{
    return &arena->chunk[arena->chunk[arena->slot[slot].chunk].first];
}

static uint32_t later(uint32_t slot, uint32_t other)
{
    return slot > other ? slot : other;
}

/* Adds one more handle. Where parts clash over it, the first part that it would come back to has
 * it, unless it is in the window already. Its other mappings in the window are taken down, even
 * where work may still use them. So all windows that have both mappings are unsafe: those that
 * begin before the end of the mapping added before this one. */
static void add_handle(struct arena *arena, struct sum *sum, uint32_t slot)
{
    struct chunk *handle = handle_in(arena, slot);
    int present = arena_is_present(arena, slot);
    uint32_t end = arena_handle_end(arena, slot);
    sum->clashes += count_handle(arena, handle, present, 1);
    if (present) {
        sum->unsafe = later(sum->unsafe, handle->unsafe_end);
        return;
    }
    if (arena->slot[slot].since > arena->left.safe) {
        uint32_t there = handle->there ? arena_handle_end(arena, handle->owner - 1) : 0;
        uint32_t other = handle->wanted_end < end ? handle->wanted_end : 0; /* not this one again */
        sum->unsafe = later(sum->unsafe, later(other, there));
        handle->unsafe_end = end;
    }
    handle->wanted_end = end;
}

/* Returns the us to map so many slots, with the largest idle handles that there are. */
static uint64_t cost_of_moves(struct search *search, uint64_t slots)
{
    uint64_t handles = 0;
    if (!slots)
        return 0;
    if (slots == search->asked)
        return search->answer;
    if (!search->asked)
        window_supply(search->arena, &search->supply);
    search->asked = slots;
    for (uint64_t span = search->arena->claim.span_most; span && slots; span--) {
        uint64_t most =
            slots / span < search->supply.of[span] ? slots / span : search->supply.of[span];
        handles += most;
        slots -= most * span;
    }
    return search->answer = (handles + (slots != 0)) * search->prices.map;
}

static int is_whole(const struct arena *arena, uint32_t slot)
{
    return !arena_is_present(arena, slot) || arena->idle[slot];
}

/* Returns the bytes that the driver must make for a window. */
static uint64_t fresh_for(const struct search *search, const struct window *window)
{
    const struct arena *arena = search->arena;
    uint64_t needed = window->end - window->first, have = arena->free.slots + arena->free.spares;
    if (search->alone)
        return search->fresh;
    /* The slots at both ends may be shared with neighbours, and be present. */
    needed -= !is_whole(arena, window->first);
    if (window->end - window->first > 1)
        needed -= !is_whole(arena, window->end - 1);
    return needed > have ? (needed - have) * CHUNK_BYTES : 0;
}

/* Returns what the addresses of a window cost that begins at `slot`. Costs are us of calls, times
 * the slots of memory. */
static uint64_t reach(const struct search *search, uint32_t slot)
{
    return search->prices.reach * (uint64_t)(slot - search->first);
}

/* Does the window have only a part of a handle that is idle or would be called back? */
static int cuts_handle(const struct arena *arena, const struct window *window)
{
    uint32_t first = window->first, last = window->end - 1;
    uint32_t begins = arena->slot[first].chunk, ends = arena->slot[last].chunk;
    return (begins && arena_handle_at(arena, first) < first &&
            window_chunk_is_idle(arena, begins)) ||
           (ends && arena_handle_end(arena, last) > last + 1 && window_chunk_is_idle(arena, ends));
}

/* Is the slot a second mapping of its handle in the window? The handle is in the window already, or
 * would come back to an earlier part of it. */
static int is_second(const struct arena *arena, const struct window *window, uint32_t slot)
{
    uint32_t begin = arena_handle_at(arena, slot);
    const struct chunk *handle = handle_in(arena, slot);
    for (uint32_t before = window->first; before < begin; before++)
        if ((arena->cost[before] & COUNTS) && handle_in(arena, before) == handle)
            return 1;
    return handle->there;
}

int window_is_safe(const struct arena *arena, const struct window *window)
{
    for (uint32_t slot = window->first; slot < window->end; slot++)
        if ((arena->cost[slot] & COUNTS) && !arena_is_present(arena, slot) &&
            arena->slot[slot].since > arena->left.safe && is_second(arena, window, slot))
            return 0;
    return 1;
}

/* Takes the window as the best, if it is. */
static void consider(struct search *search, const struct window *window, const struct sum *sum)
{
    struct arena *arena = search->arena;
    const struct prices *prices = &search->prices;
    struct window *best = &search->best;
    if (arena->joined[window->first] && arena->idle[window->first])
        return; /* it would take a part of a handle that could move */
    if (search->alone && cuts_handle(arena, window))
        return;
    uint64_t fresh = fresh_for(search, window);
    uint64_t calls = sum->cost + cost_of_moves(search, sum->moved) + sum->clashes * prices->clash;
    uint64_t cost = calls * search->memory + reach(search, window->first);
    if (fresh > best->fresh || (fresh == best->fresh && cost >= best->cost))
        return;
    int is_safe = window->first >= sum->unsafe;
    assert(is_safe == window_is_safe(arena, window));
    if (!is_safe)
        return;
    *best = *window;
    best->fresh = fresh;
    best->cost = cost;
    /* From this slot on the address alone costs as much. */
    uint64_t stop = search->first + (cost + prices->reach - 1) / prices->reach;
    if (fresh <= search->fresh && stop < search->stop)
        search->stop = (uint32_t)stop;
}

/* Adds slots [*end, until) to the window that begins with `first`. A handle counts once, at the
 * first slot that the window has of it. Returns 0 if one of the slots may be in no window. Then
 * *end is the slot behind it, and behind all that is mapped with it. */
static int add(const struct search *search, struct sum *sum, uint32_t first, uint32_t *end,
               uint32_t until, uint32_t *noted)
{
    struct arena *arena = search->arena;
    for (uint32_t slot = *end; slot < until; slot++) {
        if (slot == *noted)
            *noted = note_costs(search, slot);
        uint8_t cost = arena->cost[slot];
        if (cost == NEVER) {
            *end = *noted;
            return 0;
        }
        sum->cost += search->prices.call[cost & CALLS];
        sum->moved += cost / MOVED;
        if ((cost & COUNTS) && (slot == first || !arena->joined[slot]))
            add_handle(arena, sum, slot);
    }
    *end = until;
    return 1;
}

/* Takes the first slot off the window that ends at `end`. */
static void take_off(const struct search *search, struct sum *sum, uint32_t slot, uint32_t end)
{
    struct arena *arena = search->arena;
    uint8_t cost = arena->cost[slot];
    sum->cost -= search->prices.call[cost & CALLS];
    sum->moved -= cost / MOVED;
    if ((cost & COUNTS) && (slot + 1 == end || !arena->joined[slot + 1]))
        sum->clashes +=
            count_handle(arena, handle_in(arena, slot), arena_is_present(arena, slot), -1);
}

/* Could a window that begins with `first` be cheaper than the best one, if it needs as few moves as
 * possible? */
static int may_be_best(const struct search *search, const struct sum *sum, uint32_t first)
{
    uint64_t moves =
        (sum->moved + search->arena->claim.span_most - 1) / search->arena->claim.span_most;
    uint64_t calls = sum->cost + moves * search->prices.map + sum->clashes * search->prices.clash;
    return search->best.fresh || calls * search->memory + reach(search, first) < search->best.cost;
}

/* Looks at all windows of the run of blocks [from, run_end) that may be cheaper. These are the one
 * that begins where the run does, and those that begin with a slot. */
static void search_run(struct search *search, struct block *from, uint64_t run_end)
{
    struct arena *arena = search->arena;
    struct sum sum = {0};
    uint64_t begin = block_address(from);
    uint32_t first, end, noted;
    first = (uint32_t)arena_slot_at(begin - arena->base);
    if (search->alone && begin > arena_address(arena, first))
        begin = arena_address(arena, ++first);
    end = noted = first;
    arena->claim.runs++;
    while (begin + search->size <= run_end && first < search->stop) {
        uint64_t until = arena_slot_at(begin + search->size + CHUNK_BYTES - 1 - arena->base);
        if (!add(search, &sum, first, &end, (uint32_t)until, &noted)) {
            sum = (struct sum){0};
            arena->claim.runs++;
            begin = arena_address(arena, first = end);
            continue;
        }
        if (may_be_best(search, &sum, first)) {
            while (block_end(from) <= begin)
                from = from->next;
            const struct window window = {.from = from,
                                          .begin = begin,
                                          .first = first,
                                          .end = end,
                                          .low = first,
                                          .high = end};
            consider(search, &window, &sum);
        }
        take_off(search, &sum, first, end);
        begin = arena_address(arena, ++first);
    }
}

static int is_hole(const struct block *block)
{
    return block && !block->pinned &&
           (block->state == BLOCK_REUSABLE || block->state == BLOCK_ABSENT);
}

/* Searches each run that has an absent block once. */
int window_find(struct arena *arena, uint64_t size, int alone, uint32_t most, struct window *window)
{
    const struct arena_part *part = arena_part_for(arena, size);
    struct search search = {.arena = arena,
                            .prices = prices_of(arena->allocator->ops->costs),
                            .size = size,
                            .alone = alone,
                            .first = part->first,
                            .top = part->top,
                            .most = most,
                            .stop = part->top + 1,
                            .memory = part->chunks ? part->chunks : 1,
                            .best.fresh = UINT64_MAX};
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
        if (arena_slot_at(block_address(from) - arena->base) >= search.stop)
            break;
        while (is_hole(last->next))
            last = last->next;
        search_run(&search, from, block_end(last));
        slot = (uint32_t)arena_slot_at(block_end(last) - arena->base);
        slot += slot < part->end && !arena->idle[slot] && arena_is_present(arena, slot);
    }
    *window = search.best;
    return search.best.from != NULL;
}

void arena_displace(struct arena *arena, struct window *window, uint32_t slot)
{
    uint32_t first = arena_handle_at(arena, slot), end = arena_handle_end(arena, slot);
    window->low = first < window->low ? first : window->low;
    window->high = end > window->high ? end : window->high;
    for (slot = first; slot < end; slot++) {
        struct slot *s = &arena->slot[slot];
        assert(!s->changing && !s->allowing && s->since <= arena->left.safe);
        s->was = s->chunk;
        s->chunk = 0;
        s->changing = 1;
        arena_leave_home(arena, s->was, slot);
    }
}
