/* Gives chunks back to the driver, and finds out which slots that were left are done with.
 *
 * The driver's unmap waits for nothing, so it must follow a fence that was recorded after the last
 * use. What is to go is first taken out of all reach: its slots become absent, and its chunks are
 * leaving. Then a fence is recorded and waited for, so no use can come in between. If the wait is
 * in vain, the memory becomes spare. It can be mapped again, which needs no wait. */
#include <assert.h>
#include <stddef.h>

#include "allocator/pool/arena_chunks.h"
#include "allocator/mapping/create.h"
#include "allocator/mapping/divide.h"
#include "allocator/mapping/release.h"
#include "allocator/reuse/fence.h"
#include "allocator/reuse/lane.h"
#include "allocator/pool/arena_blocks.h"
#include "allocator/state/enter.h"

/* Is each block reusable only when its work has finished? Without lanes it is. */
static int is_always_safe(const struct allocator *a)
{
    return a->fences.lanes_over || !a->domain->lane.ops;
}

void arena_poll(struct allocator *a, struct arena *arena)
{
    if (is_always_safe(a)) {
        arena->left.safe = arena->left.epoch++;
        return;
    }
    if (arena->left.mark) {
        struct fence *mark = arena->left.mark;
        uint64_t marked = arena->left.marked; /* another thread may mark a later epoch meanwhile */
        arena->left.mark = NULL;
        if (fence_has_passed(a, mark, 0)) {
            arena->left.safe = marked > arena->left.safe ? marked : arena->left.safe;
            fence_drop(a, mark);
        } else if (a->life.forgotten || arena->left.mark) {
            fence_drop(a, mark);
        } else {
            arena->left.mark = mark;
            arena->left.marked = marked;
        }
    }
    if (!arena->left.mark && !a->life.forgotten) {
        uint64_t epoch = arena->left.epoch++;
        int code;
        struct fence *mark = fence_record_alone(a, &code);
        if (mark && (arena->left.mark || a->life.forgotten))
            fence_drop(a, mark);
        else if (mark)
            arena->left.mark = mark, arena->left.marked = epoch;
    }
}

/* Takes idle handles of `span` chunks out of their slots, the highest first. Returns bytes. */
static uint64_t take_from_slots(struct arena *arena, enum stat_pool pool, uint32_t span,
                                uint64_t most, uint32_t batch)
{
    uint64_t taken = 0;
    for (uint32_t slot = arena->part[pool].top;
         slot-- > arena->part[pool].first && taken < most && arena->free.slots;) {
        uint32_t number = arena->slot[slot].chunk, end = slot + 1;
        if (!arena->idle[slot] || arena_is_lent(arena, number) || arena->chunk[number].span != span)
            continue;
        if (arena_fill_kit(arena, 2))
            break;
        slot = arena_handle_at(arena, slot);
        arena_set_leaving(arena, number, batch);
        arena_evict(arena, slot, end);
        taken += arena_handle_bytes(arena, number);
    }
    return taken;
}

/* Takes handles of `span` chunks or more that no slot owns. Returns bytes. */
static uint64_t take_unowned(struct arena *arena, int retired, uint32_t span, uint64_t most,
                             uint32_t batch)
{
    uint64_t taken = 0;
    for (uint32_t number = 1; number <= arena->made && taken < most &&
                              (retired ? arena->free.retired : arena->free.spares);
         number++) {
        const struct chunk *chunk = &arena->chunk[number];
        if (!chunk->booked || chunk->owner || chunk->leaving || arena_is_lent(arena, number) ||
            chunk->retired != retired || chunk->span < span)
            continue;
        arena_set_leaving(arena, number, batch);
        for (uint32_t i = 0; i < chunk->span; i++)
            arena_count_spare(arena, chunk + i, -1);
        taken += arena_handle_bytes(arena, number);
        number += chunk->span - 1;
    }
    return taken;
}

/* Takes idle memory out of all reach, at least `most` bytes if there is so much, in a batch of its
 * own. First comes what can only go back. Large handles go before small ones, which fit more gaps.
 * Returns bytes. */
static uint64_t take_away(struct arena *arena, uint64_t most, uint32_t batch)
{
    uint64_t taken = take_unowned(arena, 1, 1, most, batch);
    for (uint32_t span = arena->claim.span_most; span && taken < most; span--) {
        taken += take_unowned(arena, 0, span, most - taken, batch);
        for (enum stat_pool pool = 0; pool < STAT_POOLS && taken < most; pool++)
            taken += take_from_slots(arena, pool, span, most - taken, batch);
    }
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

/* Unmaps slots [first, end), whose chunks go. Mappings that the driver keeps stay. */
static void unmap_run(struct allocator *a, struct arena *arena, uint32_t first, uint32_t end)
{
    uint64_t unmapped = 0;
    allocator_call(a);
    int code =
        a->ops->chunk_unmap(a->device, arena_address(arena, first), (end - first) * CHUNK_BYTES);
    allocator_return(a);
    for (uint32_t slot = first; slot < end; slot++) {
        struct slot *s = &arena->slot[slot];
        s->unmapped = a->life.forgotten && !code;
        if (a->life.forgotten)
            continue;
        s->changing = 0;
        if (code) {
            arena->chunk[s->chunk].stays = 1;
            continue;
        }
        unmapped += !arena->joined[slot];
        arena_leave_home(arena, s->chunk, slot);
        arena->joined[slot] = 0;
        s->chunk = 0;
    }
    stats_count(a->stats, COUNTER_num_unmaps, unmapped);
}

/* Takes down all mappings of the batch. */
static void unmap_batch(struct allocator *a, struct arena *arena, uint32_t batch)
{
    for (uint32_t slot = arena_used(arena, 0), end; !a->life.forgotten && slot < arena->slots;
         slot = arena_used(arena, end + (end == slot))) {
        end = slot;
        while (end < arena->slots && goes(arena, end, batch))
            end++;
        if (end > slot)
            unmap_run(a, arena, slot, end);
    }
}

/* Gives the handles of the batch to the driver, when they are mapped nowhere. Handles that it
 * refuses stay ours. Returns bytes. */
static uint64_t release_batch(struct allocator *a, struct arena *arena, uint32_t batch)
{
    uint64_t released = 0;
    for (uint32_t number = 1; !a->life.forgotten && number <= arena->made; number++) {
        struct chunk *chunk = &arena->chunk[number];
        if (chunk->leaving != batch)
            continue;
        if (chunk->stays) {
            chunk->stays = 0;
            make_spare(arena, number);
            continue;
        }
        uint64_t handle = chunk->handle, bytes = arena_handle_bytes(arena, number);
        uint32_t span = chunk->span;
        chunk->handle = 0; /* arena_bury must not release it too */
        allocator_call(a);
        int code = a->ops->chunk_release(a->device, bytes, handle);
        allocator_return(a);
        if (a->life.forgotten)
            break;
        chunk->handle = handle;
        for (uint32_t i = 0; code && i < span; i++)
            make_spare(arena, number + i);
        if (!code)
            arena_remove_handle(arena, number);
        number += span - 1;
        released += code ? 0 : bytes;
    }
    return released;
}

/* Has all work finished that may use what was just taken away? */
static int is_over(struct allocator *a, uint64_t timeout_ns)
{
    int code, over;
    if (is_always_safe(a))
        return 1;
    struct fence *fence = fence_record_alone(a, &code);
    if (code == DEVICE_DEFERRED && a->domain->lane.capturing)
        return lane_is_over(a, timeout_ns);
    if (code == DEVICE_UNSUPPORTED && timeout_ns && !a->life.forgotten) /* as CUDA's free waits */
        return fence_synchronize(a) == 0;
    if (!fence)
        return 0;
    over = fence_has_passed(a, fence, timeout_ns);
    fence_drop(a, fence);
    return over;
}

/* Reserves the slots of the batch for this thread, but for those at which another thread is. If
 * work that may use the batch is not over, all of the batch becomes spare. */
static void settle_batch(struct arena *arena, uint32_t batch, int over)
{
    for (uint32_t slot = arena_used(arena, 0); slot < arena->slots && over;
         slot = arena_used(arena, slot + 1)) {
        /* Another thread is not done here: the chunk goes another time. */
        const struct slot *s = &arena->slot[slot];
        if (s->was && arena->chunk[s->was].leaving == batch)
            make_spare(arena, s->was);
        if ((s->changing || s->allowing) && s->chunk && arena->chunk[s->chunk].leaving == batch)
            make_spare(arena, s->chunk);
    }
    for (uint32_t slot = arena_used(arena, 0); slot < arena->slots && over;
         slot = arena_used(arena, slot + 1))
        if (goes(arena, slot, batch)) /* a claim reads the slots that it changes without the lock */
            arena->slot[slot].changing = 1;
    for (uint32_t number = 1; number <= arena->made && !over; number++)
        if (arena->chunk[number].leaving == batch)
            make_spare(arena, number);
}

uint64_t arena_release(struct allocator *a, struct arena *arena, uint64_t bytes,
                       uint64_t timeout_ns)
{
    uint32_t batch = ++a->release.batches;
    arena_reunite(arena);
    if (!take_away(arena, bytes, batch))
        return 0;
    int over = is_over(a, timeout_ns);
    if (!a->life.forgotten)
        settle_batch(arena, batch, over);
    if (over && !a->life.forgotten)
        unmap_batch(a, arena, batch);
    return over && !a->life.forgotten ? release_batch(a, arena, batch) : 0;
}

uint64_t arena_retired(const struct allocator *a)
{
    return a->arena ? a->arena->free.retired * CHUNK_BYTES : 0;
}

uint64_t arena_unused(struct allocator *a)
{
    struct arena *arena = a->arena;
    if (!arena)
        return 0;
    arena_reunite(arena);
    uint64_t idle = arena_idle_bytes(arena);
    uint64_t unused = arena->free.least < idle ? arena->free.least : idle;
    arena->free.least = idle;
    return arena->free.retired * CHUNK_BYTES + unused;
}

static int may_allow(const struct arena *arena, uint32_t slot)
{
    return arena->slot[slot].chunk && !arena->slot[slot].changing;
}

static int allow_again(struct allocator *a, struct arena *arena)
{
    int code = 0;
    arena->left.walks++;
    for (uint32_t slot = arena_used(arena, 0), end; !a->life.forgotten && slot < arena->slots;
         slot = arena_used(arena, end + (end == slot))) {
        for (end = slot; end < arena->slots && may_allow(arena, end); end++)
            arena->slot[end].allowing++;
        if (end == slot)
            continue;
        allocator_call(a);
        int result =
            a->ops->chunk_allow(a->device, arena_address(arena, slot), (end - slot) * CHUNK_BYTES);
        allocator_return(a);
        code = code ? code : result;
        for (uint32_t done = slot; !a->life.forgotten && done < end; done++)
            arena->slot[done].allowing--;
    }
    return a->life.forgotten ? 0 : code;
}

int arena_allow(struct allocator *a)
{
    return a->arena ? allow_again(a, a->arena) : 0;
}

/* Returns what is mapped in a slot, or 0. If a claim or a release was changing the slot when the
 * context ended, that depends on how far it came. */
static uint32_t mapped_at(const struct arena *arena, uint32_t slot)
{
    const struct slot *s = &arena->slot[slot];
    if (!s->changing || s->mapped)
        return s->chunk;
    if (s->unmapped)
        return 0;
    return s->was ? s->was : arena->chunk[s->chunk].leaving ? s->chunk : 0;
}

void arena_forget(struct allocator *a)
{
    struct fence *mark = a->arena ? a->arena->left.mark : NULL;
    if (mark)
        fence_drop(a, mark);
    if (a->arena)
        a->arena->left.mark = NULL;
}

void arena_bury(struct allocator *a)
{
    struct arena *arena = a->arena;
    for (uint32_t slot = arena_used(arena, 0); slot < arena->slots;
         slot = arena_used(arena, slot + 1)) {
        uint32_t number = mapped_at(arena, slot);
        if (number && arena_is_first(arena, number))
            a->ops->chunk_unmap(a->device, arena_address(arena, slot),
                                arena_handle_bytes(arena, number));
    }
    for (uint32_t number = 1; number <= arena->made; number++)
        if (arena->chunk[number].handle)
            a->ops->chunk_release(a->device, arena_handle_bytes(arena, number),
                                  arena->chunk[number].handle);
    arena_destroy(a, arena);
}
