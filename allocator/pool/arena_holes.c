/* Holes of mapped memory: which handles lie wholly in reusable blocks, and in which block an idle
 * or absent slot lies.
 *
 * Each reusable or absent block is noted at its first whole slot, so a scan of the slots finds all
 * of them. Hits cost nothing: only blocks of a chunk's size or more touch `idle`. */
#include "allocator/pool/arena_holes.h"

#include <assert.h>
#include <string.h>

#include "allocator/pool/arena_chunks.h"

/* The slots [first, last) whose handles lie wholly in a run of reusable bytes. */
struct whole {
    uint64_t first, last;
};

/* For the bytes [begin, end), by offset in the arena. */
static struct whole whole_of(const struct arena *arena, uint64_t begin, uint64_t end)
{
    struct whole whole = {arena_slot_at(begin + CHUNK_BYTES - 1), arena_slot_at(end)};
    while (whole.first < whole.last && arena->joined[whole.first])
        whole.first++; /* another block has a part of this handle */
    while (whole.first < whole.last && arena->joined[whole.last])
        whole.last--;
    return whole;
}

/* Leave out the slots that lie wholly in the bytes from offset `at` on (behind), or before it: they
 * do not change. drop_behind returns whether there were any; *whole then ends where they begin. */
static int drop_behind(const struct arena *arena, struct whole *whole, uint64_t at)
{
    uint64_t first = arena_slot_at(at + CHUNK_BYTES - 1);
    while (first < whole->last && arena->joined[first])
        first++;
    if (first >= whole->last)
        return 0;
    whole->last = first;
    return 1;
}

static void drop_before(const struct arena *arena, struct whole *whole, uint64_t at)
{
    uint64_t last = arena_slot_at(at);
    while (last > whole->first && arena->joined[last])
        last--;
    if (last > whole->first)
        whole->first = last;
}

static void set_idle(struct arena *arena, const struct whole *whole, int idle)
{
    uint64_t slots = whole->last - whole->first;
    memset(arena->idle + whole->first, idle, slots);
    arena->free.slots += (uint32_t)(idle ? slots : -slots);
    arena_note_movable(arena);
}

void arena_note_in_large(struct block *block, uint64_t begin, uint64_t end)
{
    struct arena *arena = block->segment->arena;
    uint64_t low = block_address(block), high = low + block_size(block);
    struct whole whole = whole_of(arena, low - arena->base, high - arena->base);
    if (whole.first >= whole.last)
        return;
    arena->slot[whole.first].hole = block;
    if (end < high)
        drop_behind(arena, &whole, end - arena->base);
    if (begin > low)
        drop_before(arena, &whole, begin - arena->base);
    set_idle(arena, &whole, 1);
}

void arena_note_out_large(const struct block *block, struct block *rest)
{
    struct arena *arena = block->segment->arena;
    uint64_t begin = block_address(block) - arena->base, end = begin + block_size(block);
    struct whole whole = whole_of(arena, begin, end + (rest ? block_size(rest) : 0));
    if (whole.first >= whole.last)
        return;
    if (rest && drop_behind(arena, &whole, end))
        arena->slot[whole.last].hole = rest;
    set_idle(arena, &whole, 0);
}

struct block *arena_block_at(const struct arena *arena, uint32_t slot)
{
    assert(arena->idle[slot]);
    const uint8_t *before = memrchr(arena->idle, 0, slot);
    return arena->slot[before ? before - arena->idle + 1 : 0].hole;
}

struct block *arena_absent_at(const struct arena *arena, uint32_t slot)
{
    uint32_t first = arena->part[arena_pool_of(arena, slot)].first;
    for (uint64_t eight; slot >= first + sizeof eight; slot -= 8) {
        memcpy(&eight, arena->present + slot - sizeof eight, sizeof eight);
        if (eight != NOT_PRESENT)
            break;
    }
    while (slot > first && !arena_is_present(arena, slot - 1))
        slot--;
    return arena->slot[slot].hole;
}

int arena_is_alone(const struct block *block)
{
    const struct arena *arena = block->segment->arena;
    uint64_t begin = block_address(block) - arena->base, end = begin + block_size(block);
    return begin % CHUNK_BYTES == 0 && arena->idle[arena_slot_at(begin)] &&
           arena->idle[arena_slot_at(end - 1)];
}
