/* Claims: make a block of an arena where no hole is large enough.
 *
 * A window is a run of reusable and absent blocks. Of all windows that are long enough, a claim
 * takes the cheapest. That is the one that needs the least new memory. If several need as little,
 * it is the one whose driver calls and addresses cost least; low addresses cost less.
 *
 * A slot costs hardly anything if its memory is present, or if the chunk mapped there earlier is
 * idle elsewhere: that chunk is called back. Otherwise an idle handle is mapped there, the largest
 * that fits, or a new one. An earlier mapping of the slot is taken down first, if the work that may
 * use it has passed. While there are few mappings, windows beyond the last slot used are cheaper.
 * So a claim spends addresses, up to `policy.keep` times the memory, until whatever the program
 * repeats has addresses of its own.
 *
 * All is decided and booked under the lock. The driver is called without it: meanwhile the block is
 * claimed, and its slots are changing. */
#include <assert.h>
#include <stddef.h>

#include "allocator/mapping/claim.h"
#include "allocator/base/policy.h"
#include "allocator/mapping/divide.h"
#include "allocator/mapping/release.h"
#include "allocator/mapping/map_slots.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/pool.h"
#include "allocator/pool/arena_blocks.h"
#include "allocator/state/enter.h"

/* Takes the blocks of the window out of pool and lists, joined to one block. */
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

/* Is the chunk mapped in a slot of the window idle in its own slot, so that it can be called
 * back? */
static int comes_back(const struct arena *arena, uint32_t slot)
{
    uint32_t chunk = arena->slot[slot].chunk;
    return chunk && !arena_is_present(arena, slot) && window_chunk_is_idle(arena, chunk);
}

static uint32_t owner_of(const struct arena *arena, uint32_t slot)
{
    return arena->chunk[arena->slot[slot].chunk].owner;
}

/* Makes slots [first, end) of an absent block reusable: they have memory again. */
static void fill(struct arena *arena, struct block *absent, uint32_t first, uint32_t end)
{
    if (first < end)
        arena_put(
            arena_isolate(arena, absent, arena_address(arena, first), arena_address(arena, end)),
            BLOCK_REUSABLE);
}

/* Calls back the handles mapped in the window that are idle elsewhere. Handles that lie side by
 * side in both places come back as one. At both ends they may reach beyond the window. `block` is
 * the window's block. */
static void call_back(struct arena *arena, const struct window *window, struct block *block)
{
    for (uint32_t slot = window->first, end; slot < window->end; slot = end) {
        end = slot + 1;
        if (!comes_back(arena, slot))
            continue;
        slot = arena_handle_at(arena, slot);
        end = arena_handle_end(arena, slot);
        uint32_t owner = owner_of(arena, slot);
        while (owner && end < window->end && owner_of(arena, end) == owner + end - slot &&
               comes_back(arena, end))
            end = arena_handle_end(arena, end);
        if (owner)
            arena_evict(arena, owner - 1, owner - 1 + end - slot);
        for (uint32_t at = slot; at < end; at++) {
            if (!owner)
                arena_count_spare(arena, &arena->chunk[arena->slot[at].chunk], -1);
            arena_own(arena, arena->slot[at].chunk, at);
            arena_give_home(arena, arena->slot[at].chunk, at);
        }
        fill(arena, block->previous, slot, window->first);
        fill(arena, block->next, window->end, end);
    }
}

/* Takes an idle handle out of its slots, or out of the spare ones: no slot owns it. */
static void take(struct arena *arena, uint32_t first)
{
    const struct chunk *chunk = &arena->chunk[first];
    if (chunk->owner)
        arena_evict(arena, chunk->owner - 1, chunk->owner - 1 + chunk->span);
    else
        for (uint32_t i = 0; i < chunk->span; i++)
            arena_count_spare(arena, chunk + i, -1);
}

/* Does an idle handle of `span` chunks begin in the slot? */
static int is_idle_handle(const struct arena *arena, uint32_t slot, uint32_t span)
{
    return arena->idle[slot] && arena->chunk[arena->slot[slot].chunk].span == span &&
           arena_is_first(arena, arena->slot[slot].chunk);
}

/* Returns the first idle handle of `span` chunks in the smallest hole that has one. */
static uint32_t idle_in_smallest(const struct arena *arena, uint32_t span)
{
    uint32_t number = 0;
    uint64_t least = UINT64_MAX;
    const struct block *hole = NULL;
    for (uint32_t slot = arena_next_idle(arena, 0); slot < arena->slots;
         slot = arena_next_idle(arena, arena_handle_end(arena, slot))) {
        if (arena_begins_hole(arena, slot))
            hole = arena->slot[slot].hole;
        if (block_size(hole) < least && is_idle_handle(arena, slot, span)) {
            least = block_size(hole);
            number = arena->slot[slot].chunk;
        }
    }
    return number;
}

/* Takes the largest idle handle of at most `run` chunks: a spare one, or one from the smallest hole
 * that has such. That makes this hole smaller still, so the next call goes on there. Returns its
 * number, or 0. */
static uint32_t take_idle(struct arena *arena, struct supply *supply, uint32_t run)
{
    uint32_t span = run < SPANS_MOST ? run : SPANS_MOST, number = 0;
    while (span && !supply->of[span])
        span--;
    if (!span)
        return 0;
    supply->of[span]--;
    for (uint32_t *next = &supply->spare[span];
         arena->free.spares && !number && *next < arena->made;)
        if (window_is_spare(arena, ++*next) && arena->chunk[*next].span == span)
            number = *next;
    if (!number) {
        uint32_t slot = supply->behind[span];
        int more = slot && slot < arena->slots && is_idle_handle(arena, slot, span);
        number = more ? arena->slot[slot].chunk : idle_in_smallest(arena, span);
        supply->behind[span] = arena->chunk[number].owner - 1 + span;
    }
    take(arena, number);
    return number;
}

/* Gives the slots from `slot` on to the handle, which is yet to be mapped there. */
static void place(struct arena *arena, struct window *window, uint32_t slot, uint32_t number)
{
    for (uint32_t end = slot + arena->chunk[number].span; slot < end; slot++, number++) {
        if (arena->slot[slot].chunk)
            arena_displace(arena, window, slot);
        arena_own(arena, number, slot);
        arena->slot[slot].chunk = number;
        arena->slot[slot].changing = 1;
    }
}

/* Returns how many slots from `slot` on are absent. SPANS_MOST + 1: more than a handle has. */
static uint32_t run_at(const struct arena *arena, const struct window *window, uint32_t slot)
{
    uint32_t end = slot;
    while (end < window->end && end - slot <= SPANS_MOST && !arena_is_present(arena, end))
        end++;
    return end - slot;
}

/* Could the window, whose last slot is absent, go on for `more` slots? */
static int has_room_behind(const struct arena *arena, const struct window *window,
                           const struct block *absent, uint32_t more)
{
    uint32_t end = window->end + more;
    if (!absent || absent->state != BLOCK_ABSENT || block_end(absent) < arena_address(arena, end))
        return 0;
    for (uint32_t slot = window->end; slot < end; slot++) {
        if (!arena_may_remap(arena, slot))
            return 0;
    }
    return 1;
}

/* Takes the smallest idle handle that is larger than the last `run` slots of the window. Window and
 * block then go on behind their end. Returns its number, or 0 if there is none, or no room. */
static uint32_t take_larger(struct arena *arena, struct supply *supply, struct window *window,
                            struct block *block, uint32_t run)
{
    uint32_t more = 1;
    while (run + more <= SPANS_MOST && !supply->of[run + more])
        more++;
    if (run + more > SPANS_MOST || !has_room_behind(arena, window, block->next, more))
        return 0;
    uint32_t number = take_idle(arena, supply, run + more);
    block_join(block, arena_isolate(arena, block->next, arena_address(arena, window->end),
                                    arena_address(arena, window->end + more)));
    window->end += more;
    window->high = window->end > window->high ? window->end : window->high;
    return number;
}

/* Gives the absent slots of the window handles that the driver will map there, idle or new ones.
 * Adds them to *moves. Returns the bytes of the new ones. */
static uint64_t move_in(struct arena *arena, struct window *window, struct block *block,
                        uint64_t size, int flags, uint32_t *moves)
{
    struct supply supply = {0};
    uint64_t fresh = 0, missing = 0;
    uint32_t last = 0, number;
    for (uint32_t slot = window->first; slot < window->end; slot++)
        missing += arena_is_present(arena, slot) ? 0 : CHUNK_BYTES;
    /* Where blocks share no chunk, one that has to share holds all of each handle that it has a
     * part of: its handles are small. */
    int exact = packing_is_exact(arena->allocator, size);
    uint32_t most = exact && !(flags & CLAIM_ALONE) ? 1 : arena_span_for(arena, size, missing);
    if (missing)
        window_supply(arena, &supply);
    for (uint32_t slot = window->first; slot < window->end;) {
        if (arena_is_present(arena, slot)) {
            slot++;
            continue;
        }
        uint32_t run = run_at(arena, window, slot), span = run < most ? run : most;
        number = take_idle(arena, &supply, run);
        if (!number && slot + run == window->end && size > MIB && !exact)
            number = take_larger(arena, &supply, window, block, run);
        if (!number) {
            number = arena_number_handle(arena, last + 1, span);
            last = number + arena->chunk[number].span - 1;
            fresh += arena_handle_bytes(arena, number);
        }
        place(arena, window, slot, number);
        slot += arena->chunk[number].span;
        ++*moves;
    }
    return fresh;
}

/* Puts the parts of the window's block back to where they came from. */
static void dissolve(struct arena *arena, struct block *block)
{
    uint64_t begin = block_address(block), until = block_end(block);
    for (struct block *rest; block; block = rest) {
        uint64_t end = block_end(block);
        uint32_t slot = (uint32_t)arena_slot_at(block_address(block) - arena->base);
        int present = arena_is_present(arena, slot);
        while (arena_address(arena, slot) < end && arena_is_present(arena, slot) == present)
            slot++;
        rest = arena_address(arena, slot) < end
                   ? arena_cut(arena, block, arena_address(arena, slot))
                   : NULL;
        if (!present)
            block->pinned = 0; /* set meanwhile, for a neighbour */
        block = arena_put(block, present ? BLOCK_REUSABLE : BLOCK_ABSENT);
        if (block->pinned)
            arena_retire(block);
    }
    arena_go_home(arena, begin, until);
}

/* Returns the driver's free bytes where the claim needs them; UINT64_MAX: any number. A large
 * request needs them: else it would fill the device with chunks each time before it fails.
 * CLAIM_ALONE must know what to give back. After CLAIM_DIVIDE nothing would give back what was made
 * in vain. Drops the lock meanwhile. */
static uint64_t room_for(struct allocator *a, uint64_t size, int flags)
{
    uint64_t room = UINT64_MAX, total;
    if (size < policy.handle_most && !(flags & (CLAIM_ALONE | CLAIM_DIVIDE)))
        return room;
    allocator_call(a);
    if (a->ops->query_memory(a->device, &room, &total))
        room = UINT64_MAX;
    allocator_return(a);
    return room;
}

/* Is there room for `bytes` of new chunks, if the driver has `room`? Notes what is missing. */
static int has_room(const struct allocator *a, struct arena *arena, uint64_t bytes, uint64_t room)
{
    uint64_t reserved = allocator_reserved(a);
    uint64_t below = a->limit > reserved ? a->limit - reserved : 0;
    arena->claim.room = room < below ? room : below;
    arena->claim.missing = bytes > arena->claim.room ? bytes - arena->claim.room : 0;
    return !arena->claim.missing;
}

/* Puts block structs in reserve for all cuts of the claim. */
static int fill_kit(struct arena *arena, const struct window *window)
{
    unsigned corners = (window->front.bytes != 0) + (window->back.bytes != 0);
    return arena_fill_kit(arena, 4 * (window->end - window->first) + 8 + 6 * corners);
}

/* Chooses the cheapest window. Returns 0 if there is none, or no room for its new memory. */
static int choose(const struct allocator *a, struct arena *arena, uint64_t size, int flags,
                  uint64_t room, struct window *window)
{
    const struct arena_part *part = arena_part_for(arena, size);
    int alone = (flags & CLAIM_ALONE) != 0;
    uint64_t most = (part->chunks + size / CHUNK_BYTES) * policy.keep;
    most += part->first;
    most = most < part->end ? most : part->end;
    if (alone && !has_room(a, arena, window_fresh_alone(arena, size), room))
        return 0;
    /* More addresses are better than no memory. */
    int found = window_find(arena, size, alone, (uint32_t)most, window) ||
                window_find(arena, size, alone, part->end, window);
    if (flags & CLAIM_DIVIDE && part == &arena->part[LARGE_POOL] &&
        !(found && has_room(a, arena, window->fresh, room)))
        found |= arena_find_divided(arena, size, window);
    return found && has_room(a, arena, window->fresh, room) && arena->made < arena->slots / 2;
}

/* Claims a block of `size` bytes, in no pool. Drops the lock meanwhile. */
int arena_claim_in(struct arena *arena, uint64_t size, int flags, struct block **taken)
{
    struct allocator *a = arena->allocator;
    struct window chosen, *window = &chosen;
    int code = 0, alone = (flags & CLAIM_ALONE) != 0;
    uint64_t whole = alone ? native_bytes_of(size) : size;
    arena->claim.missing = arena->claim.unfit = 0;
    uint64_t room = flags & CLAIM_GROW ? room_for(a, size, flags) : 0;
    if (!a->life.forgotten)
        arena_poll(a, arena);
    if (a->life.forgotten) /* both steps may drop the lock */
        return ALLOCATOR_PASS;
    arena_reunite(arena);
    struct arena_part *part =
        arena_part_for(arena, size); /* requests of others may change it meanwhile */
    if (size / CHUNK_BYTES > (part->end - part->first) / 2 ||
        !choose(a, arena, whole, flags, room, window) || fill_kit(arena, window))
        return a->ops->out_of_memory;
    uint32_t moves = window->front.bytes || window->back.bytes ? arena_divide(arena, window) : 0;
    /* The whole corner is mapped anew, so this block has all of it meanwhile. */
    if (window->back.bytes)
        whole = arena_address(arena, window->end - 1) + window->back.bytes - window->begin;
    struct block *block = carve(arena, window, whole);
    call_back(arena, window, block);
    uint64_t fresh = move_in(arena, window, block, size, flags, &moves);
    part->top = window->end > part->top ? window->end : part->top;
    arena_note_idle(arena);
    /* Idle memory may be in handles too large for the gaps. */
    if (fresh > window->fresh && !(flags & CLAIM_GROW && has_room(a, arena, fresh, room))) {
        code = arena_abandon(arena, window);
        arena->claim.unfit = fresh - window->fresh;
    } else if (moves)
        code = arena_make_usable(a, arena, window, fresh);
    if (code) {
        if (code != ALLOCATOR_PASS)
            dissolve(arena, block);
        return code;
    }
    if (block_size(block) > size)
        arena_put(arena_cut(arena, block, block_address(block) + size), BLOCK_REUSABLE);
    *taken = block;
    return 0;
}
