/* Chunks go back to the driver, and slots that were left are found done with.
 *
 * The driver's unmap waits for nothing, so it may only follow a fence that was recorded after the
 * last use. What is to go is first taken out of all reach (its slots absent, its chunk leaving),
 * then a fence is sealed and waited for: no use can come in between. A wait in vain makes it spare:
 * it can be mapped again, which needs no wait. */
#include <stddef.h>

#include "allocator/arena_parts.h"
#include "allocator/fence.h"
#include "allocator/record.h"

/* All frees are reusable only when their work is done, but for those on a lane. */
static int is_always_safe(const struct allocator *a)
{
    return a->no_events || !a->domain->lane.ops;
}

void arena_poll(struct allocator *a)
{
    struct arena *arena = a->arena;
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

/* Where it was mapped first; 0: nowhere yet. */
static void record(const struct allocator *a, enum event_action action, uint32_t slot,
                   uint64_t bytes)
{
    record_chunk(a, action, slot ? arena_address(a->arena, slot - 1) : 0, bytes);
}

void arena_add_chunk(struct allocator *a, uint32_t number)
{
    struct arena *arena = a->arena;
    struct chunk *chunk = &arena->chunk[number];
    chunk->booked = 1;
    arena->chunks++;
    arena->tails += chunk->bytes < arena->chunk_bytes;
    arena->booked += chunk->bytes;
    stats_add(a->stats, STAT_segment, LARGE_POOL, 1);
    stats_add(a->stats, STAT_reserved_bytes, LARGE_POOL, chunk->bytes);
    stats_count(a->stats, COUNTER_num_device_alloc, 1);
    record(a, EVENT_segment_map, chunk->owner, chunk->bytes);
}

static void remove_chunk(struct allocator *a, uint32_t number)
{
    struct arena *arena = a->arena;
    uint64_t bytes = arena->chunk[number].bytes;
    record(a, EVENT_segment_unmap, arena->chunk[number].home, bytes);
    arena->chunk[number] = (struct chunk){0};
    arena->chunks--;
    arena->tails -= bytes < arena->chunk_bytes;
    arena->booked -= bytes;
    stats_subtract(a->stats, STAT_segment, LARGE_POOL, 1);
    stats_subtract(a->stats, STAT_reserved_bytes, LARGE_POOL, bytes);
    stats_count(a->stats, COUNTER_num_device_free, 1);
}

/* Idle chunks of slots, the highest first: of those that are tails, or of the others. */
static uint64_t take_from_slots(struct arena *arena, int tails, uint64_t most, uint32_t batch)
{
    uint64_t taken = 0;
    for (uint32_t slot = arena->top;
         slot-- && taken < most && (tails ? arena->idle_tails : arena->idle_slots);) {
        struct chunk *chunk = &arena->chunk[arena->slot[slot].chunk];
        if (!arena->idle[slot] || chunk->lent || (chunk->bytes < arena->chunk_bytes) != tails)
            continue;
        if (arena_fill_kit(arena, 2))
            break;
        chunk->leaving = batch;
        arena_evict(arena, slot);
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
        if (!chunk->booked || chunk->owner || chunk->leaving || chunk->lent ||
            chunk->retired != retired)
            continue;
        chunk->leaving = batch;
        arena_count_spare(arena, chunk, -1);
        taken += chunk->bytes;
    }
    return taken;
}

/* Idle chunks, `most` bytes of them if there are so many: retired first, then spare, then tails,
 * which serve few. Out of all reach, in a batch of their own. */
static uint64_t take_away(struct arena *arena, uint64_t most, uint32_t batch)
{
    uint64_t taken = take_unowned(arena, 1, most, batch);
    if (taken < most)
        taken += take_unowned(arena, 0, most - taken, batch);
    for (int tails = 2; tails-- && taken < most;)
        taken += take_from_slots(arena, tails, most - taken, batch);
    arena_note_idle(arena);
    return taken;
}

static void make_spare(struct arena *arena, uint32_t number)
{
    arena->chunk[number].leaving = 0;
    arena_count_spare(arena, &arena->chunk[number], 1);
}

static int goes(const struct arena *arena, uint32_t slot, uint32_t batch)
{
    uint32_t chunk = arena->slot[slot].chunk;
    return chunk && arena->chunk[chunk].leaving == batch;
}

/* Unmaps slots [first, end), whose chunks go; what the driver refuses stays. */
static void unmap_run(struct allocator *a, uint32_t first, uint32_t end)
{
    struct arena *arena = a->arena;
    uint64_t bytes = (end - 1 - first) * arena->chunk_bytes + arena->slot[end - 1].bytes;
    allocator_call(a);
    int code = a->ops->chunk_unmap(a->device, arena_address(arena, first), bytes);
    allocator_return(a);
    for (uint32_t slot = first; slot < end && !a->forgotten; slot++) {
        struct slot *s = &arena->slot[slot];
        s->changing = 0;
        if (code && arena->chunk[s->chunk].leaving)
            make_spare(arena, s->chunk);
        if (code)
            continue;
        if (arena->chunk[s->chunk].home == slot + 1)
            arena->chunk[s->chunk].home = 0;
        s->chunk = 0;
        s->bytes = 0;
    }
    stats_count(a->stats, COUNTER_num_unmaps, code ? 0 : end - first);
}

/* Takes down all mappings of the batch. */
static void unmap_batch(struct allocator *a, uint32_t batch)
{
    struct arena *arena = a->arena;
    for (uint32_t slot = 0, end; !a->forgotten && slot < arena->top; slot = end + (end == slot)) {
        end = slot;
        while (end < arena->top && goes(arena, end, batch) &&
               arena->slot[end++].bytes == arena->chunk_bytes)
            ; /* behind a tail nothing is mapped */
        if (end > slot)
            unmap_run(a, slot, end);
    }
}

/* Gives the chunks of the batch, mapped nowhere any more, to the driver. What it does not take is
 * still ours. */
static uint64_t release_batch(struct allocator *a, uint32_t batch)
{
    struct arena *arena = a->arena;
    uint64_t released = 0;
    for (uint32_t number = 1; !a->forgotten && number <= arena->made; number++) {
        if (arena->chunk[number].leaving != batch)
            continue;
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
            remove_chunk(a, number);
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

uint64_t arena_release(struct allocator *a, uint64_t bytes, uint64_t timeout_ns)
{
    struct arena *arena = a->arena;
    uint32_t batch = ++arena->batches;
    if (!take_away(arena, bytes, batch))
        return 0;
    int over = is_over(a, timeout_ns);
    if (a->forgotten)
        return 0;
    for (uint32_t slot = 0; slot < arena->top && over; slot++) {
        /* What another thread has still to do here lets it go another time. */
        const struct slot *s = &arena->slot[slot];
        if (s->was && arena->chunk[s->was].leaving == batch)
            make_spare(arena, s->was);
        if ((s->changing || s->allowing) && s->chunk && arena->chunk[s->chunk].leaving == batch)
            make_spare(arena, s->chunk);
    }
    for (uint32_t slot = 0; slot < arena->top && over; slot++)
        if (goes(arena, slot, batch)) /* a claim reads its own without the lock */
            arena->slot[slot].changing = 1;
    for (uint32_t number = 1; number <= arena->made && !over; number++)
        if (arena->chunk[number].leaving == batch)
            make_spare(arena, number);
    unmap_batch(a, batch);
    return release_batch(a, batch);
}

static int may_allow(const struct arena *arena, uint32_t slot)
{
    return arena->slot[slot].chunk && !arena->slot[slot].changing;
}

void arena_allow(struct allocator *a)
{
    struct arena *arena = a->arena;
    arena->walks++;
    for (uint32_t slot = 0, end; !a->forgotten && slot < arena->top; slot = end + (end == slot)) {
        uint64_t bytes = 0;
        for (end = slot; end < arena->top && may_allow(arena, end) &&
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

void arena_bury(struct allocator *a)
{
    struct arena *arena = a->arena;
    for (uint32_t slot = 0; slot < arena->top; slot++) {
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
    a->ops->range_free(a->device, arena->base, arena->reserved);
    arena_unmap_tables(arena);
}
