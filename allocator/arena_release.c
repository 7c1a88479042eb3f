/* Chunks go back to the driver, and slots that were left are found done with.
 *
 * The driver's unmap waits for nothing, so it may only follow a fence that was recorded after the
 * last use. What is to go is first taken out of all reach (its slots absent, its chunk leaving),
 * then a fence is sealed and waited for: no use can come in between. A wait in vain makes it spare:
 * it can be mapped again, which needs no wait. */
#include <assert.h>
#include <stddef.h>

#include "allocator/arena_chunks.h"
#include "allocator/arena_make.h"
#include "allocator/fence.h"

/* All frees are reusable only when their work is done, but for those on a lane. */
static int is_always_safe(const struct allocator *a)
{
    return a->no_events || !a->domain->lane.ops;
}

void arena_poll(struct allocator *a, struct arena *arena)
{
    if (is_always_safe(a)) {
        arena->safe = arena->epoch++;
        return;
    }
    if (arena->mark) {
        struct fence *mark = arena->mark;
        uint64_t marked = arena->marked; /* another thread may mark a later epoch meanwhile */
        arena->mark = NULL;
        if (fence_has_passed(a, mark, 0)) {
            arena->safe = marked > arena->safe ? marked : arena->safe;
            fence_drop(a, mark);
        } else if (mark->state == FENCE_GONE || arena->mark) {
            fence_drop(a, mark);
        } else {
            arena->mark = mark;
            arena->marked = marked;
        }
    }
    if (!arena->mark && !a->forgotten) {
        uint64_t epoch = arena->epoch++;
        int code;
        struct fence *mark = fence_record_alone(a, &code);
        if (mark && (arena->mark || a->forgotten))
            fence_drop(a, mark);
        else if (mark)
            arena->mark = mark, arena->marked = epoch;
    }
}

/* Idle chunks of slots, the highest first: of those that are tails, or of the others. */
static uint64_t take_from_slots(struct arena *arena, enum stat_pool pool, int tails, uint64_t most,
                                uint32_t batch)
{
    uint64_t taken = 0;
    for (uint32_t slot = arena->part[pool].top; slot-- > arena->part[pool].first && taken < most &&
                                                (tails ? arena->idle_tails : arena->idle_slots);) {
        struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
        if (!arena->idle[slot] || arena_is_lent(arena, arena->slot[slot].chunk) ||
            (chunk->bytes < arena->chunk_bytes) != tails)
            continue;
        if (arena_fill_kit(arena, 2))
            break;
        arena_set_leaving(arena, arena->slot[slot].chunk, batch);
        arena_evict(arena, slot, slot + 1);
        taken += chunk->bytes;
    }
    return taken;
}

/* Those that no slot has, `most` bytes of them. */
static uint64_t take_unowned(struct arena *arena, int retired, uint64_t most, uint32_t batch)
{
    uint64_t taken = 0;
    for (uint32_t number = 1; number <= arena->made && taken < most &&
                              (retired ? arena->retired : arena->spares + arena->idle_tails);
         number++) {
        struct chunk *chunk = &arena->chunk[number];
        if (!chunk->booked || chunk->owner || chunk->leaving || arena_is_lent(arena, number) ||
            chunk->retired != retired)
            continue;
        arena_set_leaving(arena, number, batch);
        arena_count_spare(arena, chunk, -1);
        taken += chunk->bytes;
    }
    return taken;
}

/* Idle chunks, `most` bytes of them if there are so many: of the oldest arena first; spare, then
 * tails, which serve few. */
static uint64_t take_idle(struct arena *arena, const struct arena *until, uint64_t most,
                          uint32_t batch)
{
    uint64_t taken = arena->older != until ? take_idle(arena->older, until, most, batch) : 0;
    if (taken < most)
        taken += take_unowned(arena, 0, most - taken, batch);
    for (int tails = 2; tails--;)
        for (enum stat_pool pool = 0; pool < STAT_POOLS && taken < most; pool++)
            taken += take_from_slots(arena, pool, tails, most - taken, batch);
    arena_note_idle(arena);
    return taken;
}

/* The same, before them what can only go. Out of all reach, in a batch of their own. */
static uint64_t take_away(struct arena *from, const struct arena *until, uint64_t most,
                          uint32_t batch)
{
    uint64_t taken = 0;
    for (struct arena *arena = from; arena != until && taken < most; arena = arena->older)
        taken += take_unowned(arena, 1, most - taken, batch);
    return taken < most ? taken + take_idle(from, until, most - taken, batch) : taken;
}

static void make_spare(struct arena *arena, uint32_t number)
{
    arena_set_leaving(arena, number, 0);
    if (!arena->chunk[number].part_of)
        arena_count_spare(arena, &arena->chunk[number], 1);
}

static int goes(const struct arena *arena, uint32_t slot, uint32_t batch)
{
    uint32_t chunk = arena->slot[slot].chunk;
    return chunk && arena->chunk[chunk].leaving == batch;
}

/* Unmaps slots [first, end), whose chunks go; what the driver refuses stays. */
static void unmap_run(struct allocator *a, struct arena *arena, uint32_t first, uint32_t end)
{
    uint64_t bytes = (end - 1 - first) * arena->chunk_bytes + arena->slot[end - 1].bytes;
    allocator_call(a);
    int code = a->ops->chunk_unmap(a->device, arena_address(arena, first), bytes);
    allocator_return(a);
    for (uint32_t slot = first; slot < end && !a->forgotten; slot++) {
        struct slot *s = &arena->slot[slot];
        s->changing = 0;
        if (code) {
            arena->chunk[s->chunk].stays = 1;
            continue;
        }
        arena_leave_home(arena, s->chunk, slot);
        s->chunk = 0;
        s->bytes = 0;
    }
    stats_count(a->stats, COUNTER_num_unmaps, code ? 0 : end - first);
}

/* Takes down all mappings of the batch. */
static void unmap_batch(struct allocator *a, struct arena *arena, uint32_t batch)
{
    for (uint32_t slot = arena_used(arena, 0), end; !a->forgotten && slot < arena->slots;
         slot = arena_used(arena, end + (end == slot))) {
        end = slot;
        while (end < arena->slots && goes(arena, end, batch) &&
               arena->slot[end++].bytes == arena->chunk_bytes)
            ; /* behind a tail nothing is mapped */
        if (end > slot)
            unmap_run(a, arena, slot, end);
    }
}

/* Gives the chunks of the batch, mapped nowhere any more, to the driver. What it does not take is
 * still ours. */
static uint64_t release_batch(struct allocator *a, struct arena *arena, uint32_t batch)
{
    uint64_t released = 0;
    for (uint32_t number = 1; !a->forgotten && number <= arena->made; number++) {
        if (arena->chunk[number].leaving != batch)
            continue;
        if (arena->chunk[number].stays) {
            arena->chunk[number].stays = 0;
            make_spare(arena, number);
            continue;
        }
        if (arena->chunk[number].parts) {
            arena_decompose(arena, number);
            continue;
        }
        assert(!arena->chunk[number].part_of);
        uint64_t handle = arena->chunk[number].handle, bytes = arena->chunk[number].bytes;
        arena->chunk[number].handle = 0; /* not the burial's */
        allocator_call(a);
        int code = a->ops->chunk_release(a->device, bytes, handle);
        allocator_return(a);
        if (a->forgotten)
            break;
        arena->chunk[number].handle = handle;
        if (code)
            make_spare(arena, number);
        else
            arena_remove_chunk(arena, number);
        released += code ? 0 : bytes;
    }
    return released;
}

/* Is all work done that may use what has just been taken away? */
static int is_over(struct allocator *a, uint64_t timeout_ns)
{
    int code, over;
    if (is_always_safe(a))
        return 1;
    struct fence *fence = fence_record_alone(a, &code);
    if (code == DEVICE_DEFERRED && a->domain->lane.capturing)
        return lane_is_over(a, timeout_ns);
    if (code == DEVICE_UNSUPPORTED && timeout_ns && !a->forgotten) /* as the native free waits */
        return fence_synchronize(a) == 0;
    if (!fence)
        return 0;
    over = fence_has_passed(a, fence, timeout_ns);
    fence_drop(a, fence);
    return over;
}

/* What is to go, and is not in another thread's hands, is this one's from here on; if work that
 * may use it is not over, nothing is. */
static void settle_batch(struct arena *arena, uint32_t batch, int over)
{
    for (uint32_t slot = arena_used(arena, 0); slot < arena->slots && over;
         slot = arena_used(arena, slot + 1)) {
        /* What another thread has still to do here lets it go another time. */
        const struct slot *s = &arena->slot[slot];
        if (s->was && arena->chunk[s->was].leaving == batch)
            make_spare(arena, s->was);
        if ((s->changing || s->allowing) && s->chunk && arena->chunk[s->chunk].leaving == batch)
            make_spare(arena, s->chunk);
    }
    for (uint32_t slot = arena_used(arena, 0); slot < arena->slots && over;
         slot = arena_used(arena, slot + 1))
        if (goes(arena, slot, batch)) /* a claim reads its own without the lock */
            arena->slot[slot].changing = 1;
    for (uint32_t number = 1; number <= arena->made && !over; number++)
        if (arena->chunk[number].leaving == batch)
            make_spare(arena, number);
}

uint64_t arena_release_between(struct allocator *a, struct arena *from, const struct arena *until,
                               uint64_t bytes, uint64_t timeout_ns)
{
    uint32_t batch = ++a->batches;
    uint64_t released = 0;
    if (from == until || !take_away(from, until, bytes, batch))
        return 0;
    int over = is_over(a, timeout_ns);
    for (struct arena *arena = from; !a->forgotten && arena; arena = arena->older)
        settle_batch(arena, batch, over);
    /* All mappings first: what is made of pieces can only go if its own and theirs are down. */
    for (struct arena *arena = from; over && !a->forgotten && arena;
         arena = a->forgotten ? NULL : arena->older)
        unmap_batch(a, arena, batch);
    for (struct arena *arena = from; over && !a->forgotten && arena;
         arena = a->forgotten ? NULL : arena->older)
        released += release_batch(a, arena, batch);
    return released;
}

uint64_t arena_release(struct allocator *a, struct arena *from, uint64_t bytes, uint64_t timeout_ns)
{
    return arena_release_between(a, from, NULL, bytes, timeout_ns);
}

uint64_t arena_retired(const struct allocator *a)
{
    uint64_t bytes = 0;
    for (const struct arena *arena = a->arena; arena; arena = arena->older)
        bytes += arena->retired;
    return bytes;
}

uint64_t arena_unused(struct allocator *a)
{
    uint64_t bytes = arena_retired(a);
    for (struct arena *arena = a->arena; arena; arena = arena->older) {
        bytes += arena->idle_least;
        arena->idle_least = arena_idle_bytes(arena);
    }
    return bytes;
}

static int may_allow(const struct arena *arena, uint32_t slot)
{
    return arena->slot[slot].chunk && !arena->slot[slot].changing;
}

static void allow_again(struct allocator *a, struct arena *arena)
{
    arena->walks++;
    for (uint32_t slot = arena_used(arena, 0), end; !a->forgotten && slot < arena->slots;
         slot = arena_used(arena, end + (end == slot))) {
        uint64_t bytes = 0;
        for (end = slot; end < arena->slots && may_allow(arena, end) &&
                         bytes == (end - slot) * arena->chunk_bytes;
             bytes += arena->slot[end++].bytes)
            arena->slot[end].allowing++;
        if (end == slot)
            continue;
        allocator_call(a);
        a->ops->chunk_allow(a->device, arena_address(arena, slot), bytes);
        allocator_return(a);
        for (uint32_t done = slot; !a->forgotten && done < end; done++)
            arena->slot[done].allowing--;
    }
}

void arena_allow(struct allocator *a)
{
    for (struct arena *arena = a->arena; !a->forgotten && arena;) {
        allow_again(a, arena);
        arena = a->forgotten ? NULL : arena->older;
    }
}

static void bury(struct allocator *a, struct arena *arena)
{
    for (uint32_t slot = arena_used(arena, 0); slot < arena->slots;
         slot = arena_used(arena, slot + 1)) {
        const struct slot *s = &arena->slot[slot];
        uint64_t other = s->changing && s->chunk ? arena->chunk[s->chunk].bytes : s->bytes;
        if (s->bytes)
            a->ops->chunk_unmap(a->device, arena_address(arena, slot), s->bytes);
        if (other != s->bytes) /* in the middle of a change: one of the two is there */
            a->ops->chunk_unmap(a->device, arena_address(arena, slot), other);
    }
    for (uint32_t number = 1; number <= arena->made; number++)
        if (arena->chunk[number].handle)
            a->ops->chunk_release(a->device, arena->chunk[number].bytes,
                                  arena->chunk[number].handle);
    arena_destroy(a, arena);
}

void arena_bury(struct allocator *a)
{
    for (struct arena *arena = a->arena, *older; arena; arena = older) {
        older = arena->older;
        bury(a, arena);
    }
}
