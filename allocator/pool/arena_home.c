/* Handles go home: an idle handle returns to its home slot, so a program that repeats itself finds
 * it there again, without a driver call. */
#include <string.h>

#include "allocator/pool/arena_chunks.h"
#include "allocator/base/policy.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/arena_holes.h"
#include "allocator/pool/arena_blocks.h"

/* Do handles move all the time, because large sizes hardly come again? */
static int is_restless(const struct arena *arena)
{
    return arena->packing.moves > policy.stay_moves &&
           arena->packing.moves > arena->packing.requests / policy.stay_requests &&
           arena->packing.distinct > policy.stay_sizes;
}

/* Bytes of the hole of which the handle, which is away, would be a part at home. */
static uint64_t hole_at_home(const struct arena *arena, const struct chunk *chunk)
{
    uint64_t begin = arena_address(arena, chunk->home - 1);
    uint64_t bytes = chunk->span * chunk->bytes, end = begin + bytes;
    const struct block *absent = arena_absent_at(arena, chunk->home - 1);
    const struct block *before = absent->previous, *behind = absent->next;
    if (block_address(absent) == begin && before && before->state == BLOCK_REUSABLE)
        bytes += block_size(before);
    if (block_address(absent) + block_size(absent) == end && behind &&
        behind->state == BLOCK_REUSABLE)
        bytes += block_size(behind);
    return bytes;
}

/* Should an idle handle stay where it is? Homes serve programs that repeat themselves. If handles
 * move all the time, one stays where the hole is larger, so that the next request needs no claim.
 * But if little is idle, or if blocks that are never replaced by their like lie everywhere, staying
 * would scatter the idle memory. */
static int is_to_stay(const struct arena *arena, uint32_t slot)
{
    const struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
    uint64_t booked = arena->part[SMALL_POOL].booked + arena->part[LARGE_POOL].booked;
    return is_restless(arena) && !packing_is_varied(arena->allocator, 0) && !arena->tails &&
           arena_pool_of(arena, slot) == LARGE_POOL &&
           arena_pool_of(arena, chunk->home - 1) == LARGE_POOL &&
           arena_idle_bytes(arena) > booked / policy.stay_idle_part &&
           block_size(arena_block_at(arena, slot)) > hole_at_home(arena, chunk);
}

/* Is the handle that begins in `slot` idle, away and to go home? A handle without a home, or one
 * that is to stay, gets its home here. */
static int is_to_go_home(struct arena *arena, uint32_t slot)
{
    struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
    if (arena->present[slot] != AWAY || !arena->idle[slot] || chunk->home == slot + 1)
        return 0;
    if (chunk->home && !is_to_stay(arena, slot))
        return 1;
    for (uint32_t i = 0; i < chunk->span; i++) {
        chunk[i].home = slot + i + 1;
        arena->present[slot + i] = AT_HOME;
    }
    return 0;
}

/* Moves the idle chunks of slots [slot, end) to the slots from `home` on, where they are still
 * mapped. */
static void move_home(struct arena *arena, uint32_t slot, uint32_t end, uint32_t home)
{
    uint64_t address = arena_address(arena, home);
    arena_evict(arena, slot, end);
    struct block *absent = arena_absent_at(arena, home);
    for (; slot < end; slot++)
        arena_own(arena, arena->slot[slot].chunk, home++);
    uint64_t until = arena_address(arena, home - 1) + arena_present(arena, home - 1);
    arena_put(arena_isolate(arena, absent, address, until), BLOCK_REUSABLE);
}

/* Handles that lie side by side both here and at home move as one. */
void arena_go_home(struct arena *arena, uint64_t begin, uint64_t end)
{
    uint32_t slot = (uint32_t)arena_slot_at(arena, begin - arena->base), until;
    uint32_t last = (uint32_t)arena_slot_at(arena, end - 1 - arena->base);
    const uint8_t *away;
    for (; slot <= last && (away = memchr(arena->present + slot, AWAY, last + 1 - slot));
         slot = until) {
        slot = arena_handle_at(arena, (uint32_t)(away - arena->present));
        until = arena_handle_end(arena, slot);
        if (!is_to_go_home(arena, slot) || arena_fill_kit(arena, 4))
            continue;
        uint32_t home = arena->chunk[arena->slot[slot].chunk].home;
        while (until <= last && arena_present(arena, until - 1) == arena->chunk_bytes &&
               is_to_go_home(arena, until) &&
               arena->chunk[arena->slot[until].chunk].home == home + until - slot)
            until = arena_handle_end(arena, until);
        move_home(arena, slot, until, home - 1);
    }
}
