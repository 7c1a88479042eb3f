/* Handles go home: an idle handle returns to its home slot, so a program that repeats itself finds
 * it there again, without a driver call. */
#include <string.h>

#include "allocator/pool/arena_chunks.h"
#include "allocator/pool/arena_holes.h"
#include "allocator/pool/arena_blocks.h"

/* Is the handle that begins in `slot` idle, away and to go home? A handle without a home gets its
 * home here. */
static int is_to_go_home(struct arena *arena, uint32_t slot)
{
    struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
    if (arena->present[slot] != AWAY || !arena->idle[slot] || chunk->home == slot + 1)
        return 0;
    if (chunk->home)
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
    arena_put(arena_isolate(arena, absent, address, arena_address(arena, home)), BLOCK_REUSABLE);
}

/* Handles that lie side by side both here and at home move as one. */
void arena_go_home(struct arena *arena, uint64_t begin, uint64_t end)
{
    uint32_t slot = (uint32_t)arena_slot_at(begin - arena->base), until;
    uint32_t last = (uint32_t)arena_slot_at(end - 1 - arena->base);
    const uint8_t *away;
    for (; slot <= last && (away = memchr(arena->present + slot, AWAY, last + 1 - slot));
         slot = until) {
        slot = arena_handle_at(arena, (uint32_t)(away - arena->present));
        until = arena_handle_end(arena, slot);
        if (!is_to_go_home(arena, slot) || arena_fill_kit(arena, 4))
            continue;
        uint32_t home = arena->chunk[arena->slot[slot].chunk].home;
        while (until <= last && is_to_go_home(arena, until) &&
               arena->chunk[arena->slot[until].chunk].home == home + until - slot)
            until = arena_handle_end(arena, until);
        move_home(arena, slot, until, home - 1);
    }
}
