/* Claims: a block of an arena is made where no hole is large enough.
 *
 * A window is a run of reusable and absent blocks. Of all that are long enough the cheapest is
 * taken: the one that needs the least new memory, then the least idle memory, and then the fewest
 * calls of the driver. A slot of it costs nothing if its memory is present, or if the chunk that
 * was mapped here before is idle where it is now: it is called back. Otherwise some handle that is
 * idle is mapped here, the largest that fits, or a new one. What was mapped here before is taken
 * down first, if work that may use it has passed; as long as there are few mappings the windows
 * beyond the last slot used are cheaper. So addresses are spent (policy.keep times the memory) until what
 * the program repeats has addresses of its own.
 *
 * All is decided and booked under the lock, the driver is called without it: the block is claimed
 * meanwhile, and its slots are changing. */
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

/* Is what was mapped in a slot of the window idle where it is? */
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

/* Slots [first, end), which lie in the absent block, have memory again. */
static void fill(struct arena *arena, struct block *absent, uint32_t first, uint32_t end)
{
    if (first < end)
        arena_put(
            arena_isolate(arena, absent, arena_address(arena, first), arena_address(arena, end)),
            BLOCK_REUSABLE);
}

/* Gives slots of the window, whose block this is, the handles that were mapped there, where those are
 * idle; what lies side by side, as one. At its ends they may go beyond it. */
static void call_back(struct arena *arena, const struct window *window, struct block *block)
{
    for (uint32_t slot = window->first, end; slot < window->end; slot = end) {
        end = slot + 1;
        if (!comes_back(arena, window, slot))
            continue;
        slot = arena_handle_at(arena, slot);
        end = arena_handle_end(arena, slot);
        uint32_t owner = owner_of(arena, slot);
        while (owner && end < window->end && owner_of(arena, end) == owner + end - slot &&
               comes_back(arena, window, end))
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

/* A handle that is idle is nobody's. */
static void take(struct arena *arena, uint32_t first)
{
    const struct chunk *chunk = &arena->chunk[first];
    if (chunk->owner)
        arena_evict(arena, chunk->owner - 1, chunk->owner - 1 + chunk->span);
    else
        for (uint32_t i = 0; i < chunk->span; i++)
            arena_count_spare(arena, chunk + i, -1);
}

/* A tail that is idle; 0: none. */
static uint32_t take_tail(struct arena *arena, uint64_t bytes)
{
    uint32_t number = window_idle_tail(arena, bytes);
    if (number)
        take(arena, number);
    return number;
}

/* Does an idle handle of `span` whole chunks begin in the slot? */
static int is_idle_handle(const struct arena *arena, uint32_t slot, uint32_t span)
{
    return arena->idle[slot] && arena->chunk[arena->slot[slot].chunk].span == span &&
           arena_is_first(arena, arena->slot[slot].chunk) &&
           arena_present(arena, slot) == arena->chunk_bytes;
}

/* The first idle handle of `span` chunks in the smallest hole that has one. */
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

/* The largest idle handle of at most `run` chunks, of those from the smallest hole that has one, which it then is
 * all the more; 0: none. */
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

/* The slots from `slot` on have the handle, which is yet to be mapped there. */
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

/* Absent slots of the window from `slot` on that need whole chunks; SPANS_MOST + 1: more than a handle has. */
static uint32_t run_at(const struct arena *arena, const struct window *window, uint32_t slot)
{
    uint32_t end = slot;
    while (end < window->end && end - slot <= SPANS_MOST && !arena_is_present(arena, end) &&
           window_needs(arena, window, end) == arena->chunk_bytes)
        end++;
    return end - slot;
}

/* Could the window, whose last slot is absent, have as many as `more` behind it, too? */
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

/* The smallest idle handle that is too large for the last `run` slots of the window, which then goes on
 * behind the block's end; 0: none, or there is no room. */
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

/* Gives the other slots (*moves) handles that the driver will map there. Returns how many bytes of
 * those it must make. */
static uint64_t move_in(struct arena *arena, struct window *window, struct block *block,
                        uint64_t size, int flags, uint32_t *moves)
{
    struct supply supply = {0};
    uint64_t fresh = 0, missing = 0;
    uint32_t last = 0, number;
    for (uint32_t slot = window->first; slot < window->end; slot++)
        missing += arena_is_present(arena, slot) ? 0 : arena->chunk_bytes;
    /* Where blocks are to share none, one that does all the same loses what it has a part of. */
    int exact = packing_is_exact(arena->allocator, size);
    uint32_t most = exact && !(flags & CLAIM_ALONE) ? 1 : arena_span_for(arena, size, missing);
    if (missing)
        window_supply(arena, &supply);
    for (uint32_t slot = window->first; slot < window->end;) {
        if (arena_is_present(arena, slot)) {
            slot++;
            continue;
        }
        uint64_t bytes = window_needs(arena, window, slot);
        uint32_t run = run_at(arena, window, slot), span = run < most ? run : most;
        number = run ? take_idle(arena, &supply, run) : take_tail(arena, bytes);
        if (!number && run && slot + run == window->end && size > MIB && !exact)
            number = take_larger(arena, &supply, window, block, run);
        if (number) {
            arena->packing.moves++;
        } else {
            number = arena_number_handle(arena, last + 1, span ? span : 1, bytes);
            last = number + arena->chunk[number].span - 1;
            fresh += arena_handle_bytes(arena, number);
        }
        place(arena, window, slot, number);
        slot += arena->chunk[number].span;
        ++*moves;
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

/* Does the question what is free cost little beside making so many chunks? */
static int is_worth_asking(const struct allocator *a, uint64_t chunks)
{
    const struct device_costs *costs = a->ops->costs;
    return chunks * device_handle_ns(costs) >= costs->question * policy.ask_part;
}

/* What the driver has free, where much is wanted: who asks for more than there is would else fill
 * the device with chunks before that is seen, each time; where it must be known what to give back;
 * and at last, when nothing would give back what was made in vain. The lock is dropped meanwhile. */
static uint64_t room_for(struct allocator *a, const struct arena *arena, uint64_t size, int flags)
{
    uint64_t room = UINT64_MAX, total;
    if (!is_worth_asking(a, size / arena->chunk_bytes) && !(flags & (CLAIM_ALONE | CLAIM_DIVIDE)))
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
    uint64_t reserved = allocator_reserved(a);
    uint64_t below = a->limit > reserved ? a->limit - reserved : 0;
    arena->claim.room = room < below ? room : below;
    arena->claim.missing = bytes > arena->claim.room ? bytes - arena->claim.room : 0;
    return !arena->claim.missing;
}

/* In reserve for all that is cut. */
static int fill_kit(struct arena *arena, const struct window *window)
{
    unsigned corners = (window->front.bytes != 0) + (window->back.bytes != 0);
    return arena_fill_kit(arena, 4 * (window->end - window->first) + 8 + 6 * corners);
}

/* The cheapest window, and may it be had? */
static int choose(const struct allocator *a, struct arena *arena, uint64_t size, int flags,
                  uint64_t room, struct window *window)
{
    const struct arena_part *part = arena_part_for(arena, size);
    int alone = (flags & CLAIM_ALONE) != 0;
    uint64_t most = (part->chunks + size / arena->chunk_bytes) * policy.keep;
    most = part->first + (most < policy.keep_least ? policy.keep_least : most);
    most = most < part->end ? most : part->end;
    if (alone && !has_room(a, arena, window_fresh_alone(arena, size), room))
        return 0;
    /* Rather more addresses than no memory. */
    int found = window_find(arena, size, alone, (uint32_t)most, window) ||
                window_find(arena, size, alone, part->end, window);
    if (flags & CLAIM_DIVIDE && part == &arena->part[LARGE_POOL] &&
        !(found && has_room(a, arena, window->fresh, room)))
        found |= arena_find_divided(arena, size, window);
    return found && has_room(a, arena, window->fresh, room) && arena->made < arena->slots / 2;
}

/* A block of `size` bytes, in no pool, of this arena; the lock is dropped meanwhile. */
int arena_claim_in(struct arena *arena, uint64_t size, int flags, struct block **taken)
{
    struct allocator *a = arena->allocator;
    struct window chosen, *window = &chosen;
    int code = 0, alone = (flags & CLAIM_ALONE) != 0;
    uint64_t whole = alone ? native_bytes_of(size) : size;
    arena->claim.missing = arena->claim.unfit = 0;
    uint64_t room = flags & CLAIM_GROW ? room_for(a, arena, size, flags) : 0;
    if (!a->life.forgotten)
        arena_poll(a, arena);
    if (a->life.forgotten) /* either drops the lock */
        return ALLOCATOR_PASS;
    arena_reunite(arena);
    struct arena_part *part =
        arena_part_for(arena, size); /* what else was asked for may change it */
    if (size / arena->chunk_bytes > (part->end - part->first) / 2 ||
        !choose(a, arena, whole, flags, room, window) || fill_kit(arena, window))
        return a->ops->out_of_memory;
    uint32_t moves = window->front.bytes || window->back.bytes ? arena_divide(arena, window) : 0;
    /* All of that corner is mapped anew, so it is nobody else's meanwhile. */
    if (window->back.bytes)
        whole = arena_address(arena, window->end - 1) + window->back.bytes - window->begin;
    struct block *block = carve(arena, window, whole);
    call_back(arena, window, block);
    uint64_t fresh = move_in(arena, window, block, size, flags, &moves);
    part->top = window->end > part->top ? window->end : part->top;
    arena_note_idle(arena);
    /* What is idle may be there in pieces too large for the gaps. */
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
