/* Where memory comes from when the pools have none: blocks behind fences, idle mapped memory, the
 * driver, and what goes back first under pressure. */
#include "allocator/allocator.h"
#include "allocator/base/policy.h"
#include "allocator/growth.h"

#include <stddef.h>
#include <time.h>

#include "allocator/attainable.h"
#include "allocator/last_resort.h"
#include "allocator/mapping/claim.h"
#include "allocator/mapping/divide.h"
#include "allocator/mapping/release.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/pool.h"
#include "allocator/release.h"
#include "allocator/reuse/fence.h"
#include "allocator/segment/segment.h"
#include "allocator/state/record.h"
#include "allocator/thread_cache/locked.h"
#include "allocator/state/enter.h"

/* Where mapping fails, there are ordinary segments beside mapped memory. */
__attribute__((noinline)) static struct block *take_ordinary(struct allocator *a, uint64_t size)
{
    thread_cache_settle(a); /* blocks from there, and growth, may pass peaks */
    return pool_take_ordinary(a, size);
}

struct block *growth_take(struct allocator *a, uint64_t size)
{
    struct block *block = pool_take(a, size);
    if (block || pool_for(a, size) != POOL_MAPPED || size == MIB) /* small ones lie beside pages */
        return block;
    return take_ordinary(a, size);
}

/* Returns a block that becomes reusable during a wait for fences with a budget of `budget_ns`, or
 * NULL. */
static struct block *wait_for(struct allocator *a, uint64_t size, uint64_t budget_ns)
{
    struct block *block = NULL;
    if (!a->fences.pending)
        return NULL;
    struct fence_wait wait = fence_wait_begin(a, budget_ns);
    while (!block && fence_wait_next(a, &wait))
        block = growth_take(a, size);
    fence_wait_end(a, &wait);
    return block;
}

/* Returns what making and giving back `bytes` costs, in ns. A wait for a fence of that length costs
 * no more. */
static uint64_t growth_price_ns(const struct device_costs *costs, uint64_t bytes)
{
    return costs->alloc + costs->free + bytes / MIB * (costs->alloc_mib + costs->free_mib);
}

/* Could idle memory do, with the parts of chunks in the holes around it? At least one chunk is
 * missing, otherwise there would be a hole. */
static int may_do(const struct arena *arena, uint64_t size)
{
    uint64_t idle = arena_idle_bytes(arena);
    return idle && idle + 2 * CHUNK_BYTES > size;
}

/* Claims idle memory. If that is in handles too large for the gaps, some of it goes back, where its
 * work is done. Then as much is made anew in smaller handles, and no more. */
static int claim_idle(struct allocator *a, uint64_t size, struct block **taken)
{
    struct arena *arena = a->arena;
    arena_reunite(arena);
    if (!may_do(arena, size))
        return a->ops->out_of_memory;
    int code = arena_claim_in(arena, size, packing_is_exact(a, size) ? CLAIM_ALONE : 0, taken);
    if (code == a->ops->out_of_memory && !a->life.forgotten && arena->claim.unfit)
        arena_release(a, arena, arena->claim.unfit, 0);
    return a->life.forgotten ? ALLOCATOR_PASS : code;
}

/* Gives back what is in the way of a block of its own chunks, and idle within
 * `policy.moment_wait_ns`. A device that is not far behind needs no longer, and CUDA's frees
 * would have waited for it. Returns bytes. */
static uint64_t give_back(struct allocator *a, uint64_t size)
{
    uint64_t missing = a->arena->claim.missing;
    if (a->arena->claim.room + arena_idle_bytes(a->arena) >= native_bytes_of(size))
        return arena_release(a, a->arena, missing, policy.moment_wait_ns);
    thread_caches_empty(a);
    return segment_release_whole(a, missing, policy.moment_wait_ns);
}

/* Where blocks share no chunk, idle memory in other pieces may have to go back first. But no thread
 * waits long for that: then chunks are shared after all. */
static int grow_mapped(struct allocator *a, uint64_t size, struct block **taken)
{
    for (int round = 0;
         round < policy.pressure_rounds && !a->life.forgotten && packing_is_exact(a, size);
         round++) {
        int code = arena_claim_in(a->arena, size, CLAIM_GROW | CLAIM_ALONE, taken);
        if (code != a->ops->out_of_memory)
            return code;
        if (!a->arena->claim.missing || !give_back(a, size))
            break;
    }
    int code =
        a->life.forgotten ? ALLOCATOR_PASS : arena_claim_in(a->arena, size, CLAIM_GROW, taken);
    if (code == a->ops->out_of_memory && !a->life.forgotten)
        code = arena_claim_in(a->arena, size, CLAIM_GROW | CLAIM_DIVIDE, taken);
    return code;
}

static uint64_t round_up(uint64_t bytes, uint64_t grain)
{
    return (bytes + grain - 1) / grain * grain;
}

static uint64_t segment_bytes(const struct allocator *a, enum pool pool, uint64_t size, int least)
{
    uint64_t large = a->domain->options.large_segment_bytes;
    if (pool == POOL_PINNED)
        return size;
    if (pool == POOL_SMALL)
        return PYTORCH_SMALL_BUFFER;
    if (least || a->growth.as_native || pool == POOL_DEDICATED || size >= PYTORCH_MIN_LARGE_ALLOC ||
        size > large)
        return round_up(size, PYTORCH_ROUND_LARGE);
    return large;
}

/* Asks the driver (growth.h). */
int growth_by_driver(struct allocator *a, uint64_t size, enum growth growth, struct block **block)
{
    if (a->life.forgotten)
        return ALLOCATOR_PASS;
    enum pool pool = growth == GROW_NATIVE ? POOL_PINNED : pool_for(a, size);
    if (growth == GROW_SEGMENT && arena_serves(a, size)) {
        int code = grow_mapped(a, size, block);
        if (code <= 0 || code == a->ops->out_of_memory)
            return code;
    }
    if (pool == POOL_MAPPED) /* the last resort, or mapping fails: just what is needed */
        pool = pool_ordinary(size), growth = GROW_LEAST;
    uint64_t bytes = segment_bytes(a, pool, size, growth == GROW_LEAST);
    uint64_t reserved = allocator_reserved(a);
    a->growth.pressed |= stats_current_all(a->stats, STAT_active_bytes) + size >
                         a->capacity - a->capacity / policy.pressed_part;
    if (a->limit < bytes || reserved > a->limit - bytes) {
        a->growth.pressed = 1;
        a->taken = NULL;
        return a->ops->out_of_memory;
    }
    int code = segment_obtain(a, pool, size <= MIB ? SMALL_POOL : LARGE_POOL, bytes, block);
    a->growth.pressed |= code == a->ops->out_of_memory;
    a->taken = NULL; /* the next request may get another block */
    return code;
}

/* Makes room where the device is full, or the limit is reached. Memory that is idle at once goes
 * first, since a context may be busy for long. A small request gets part of a large hole before it
 * waits for more than with CUDA. */
static int make_room(struct allocator *a, uint64_t size, struct block **taken)
{
    int code;
    fence_flush_deferred(a, 1);
    thread_caches_empty(a);
    if ((*taken = growth_take(a, size)) ||
        (*taken = wait_for(a, size, size > MIB ? DEVICE_FOREVER : OWN_FOREVER)) ||
        a->life.forgotten)
        return *taken ? 0 : ALLOCATOR_PASS;
    if ((a->domain->first->next || size <= MIB) && release_for(a, size, 0) &&
        (code = growth_by_driver(a, size, GROW_SEGMENT, taken)) != a->ops->out_of_memory)
        return code;
    if (size <= MIB && !a->life.forgotten &&
        ((*taken = last_resort_corner(a, size)) || (*taken = wait_for(a, size, DEVICE_FOREVER))))
        return 0;
    if (release_for(a, size, policy.pressure_wait_ns) &&
        (code = growth_by_driver(a, size, GROW_SEGMENT, taken)) != a->ops->out_of_memory)
        return code;
    release_for(a, UINT64_MAX, policy.pressure_wait_ns);
    stats_count(a->stats, COUNTER_num_alloc_retries, 1);
    return growth_by_driver(a, size, GROW_LEAST, taken);
}

static void wait_for_ends(struct allocator *a, uint64_t size, uint64_t since_ns)
{
    while (a->domain->ending > allocator_own.ends && !a->life.forgotten &&
           a->ops->now_ns() - since_ns < policy.pressure_wait_ns && attainable(a, size))
        allocator_pause(a);
}

/* Asks other processes for what the device lacks beside this one's own idle memory. Returns whether
 * one has answered. */
static int ask_others(struct allocator *a, uint64_t size)
{
    uint64_t available, total, reserved = stats_current_all(a->stats, STAT_reserved_bytes);
    uint64_t idle = reserved - stats_current_all(a->stats, STAT_active_bytes);
    if (!a->ops->ask_others || a->life.forgotten || size > a->capacity || a->limit < size ||
        reserved - idle > a->limit - size)
        return 0;
    uint64_t begin = a->ops->now_ns(), lack = 0;
    allocator_call(a);
    int code = a->ops->query_memory(a->device, &available, &total), answered = 0;
    uint64_t needed = size + policy.handle_most; /* handles are whole, and drivers keep a rest */
    if (!code && needed > available + idle) {
        lack = needed - available - idle;
        answered = a->ops->ask_others(a->device, lack);
    }
    allocator_return(a);
    if (lack && !a->life.forgotten) {
        uint64_t waited = a->ops->now_ns() - begin;
        stats_count(a->stats, COUNTER_asked_bytes, lack);
        stats_count(a->stats, COUNTER_asked_ns, waited);
        record_ask(a, lack, waited);
    }
    return answered && !a->life.forgotten;
}

/* Grows by what others give. A third process may take it first: then they are asked again. */
static int grow_by_others(struct allocator *a, uint64_t size, struct block **taken)
{
    int code = a->ops->out_of_memory;
    for (int round = 0;
         round < policy.pressure_rounds && code == a->ops->out_of_memory && ask_others(a, size);
         round++)
        code = growth_by_driver(a, size, GROW_SEGMENT, taken);
    return a->life.forgotten ? ALLOCATOR_PASS : code;
}

/* Could a wait help? Else returns 0 and the answer to the request in *code. The driver may have more
 * free than it said, in pools of its own: so it is asked, unless it was `asked` for as much already.
 * It takes 4 ms to refuse (an H200, driver 580), so it is not asked for more than the device has. */
static int is_worth_a_wait(struct allocator *a, uint64_t size, int asked, struct block **taken,
                           int *code)
{
    *code = a->ops->out_of_memory;
    if (size > a->capacity)
        return 0;
    if (attainable(a, size))
        return 1;
    if (!asked)
        *code = growth_by_driver(a, size, GROW_LEAST, taken);
    if (*code != a->ops->out_of_memory || (!a->life.forgotten && attainable(a, size)))
        return *code == a->ops->out_of_memory;
    /* A claim in vain has made handles. */
    if (!a->life.forgotten && a->arena && size < policy.handle_most)
        arena_release(a, a->arena, size, 0);
    *code = last_resort_take(a, size, taken);
    return 0;
}

/* Makes room, one thread at a time: otherwise a thread takes what another one gives back. Tries
 * again while other threads free, and when a context has ended. A thread that waits too long for
 * its turn goes on alone: the others may be waiting for it. */
static int under_pressure(struct allocator *a, uint64_t size, int asked, struct block **taken)
{
    struct timespec limit;
    int code;
    if ((code = grow_by_others(a, size, taken)) != a->ops->out_of_memory)
        return code;
    if (!is_worth_a_wait(a, size, asked, taken, &code))
        return code;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += policy.pressure_wait_ns / 1000000000;
    a->domain->pressing++;
    allocator_leave(a);
    int alone = pthread_mutex_timedlock(&a->domain->pressure, &limit) == 0;
    allocator_enter(a);
    uint64_t begin = a->ops->now_ns();
    for (int round = 0;; round++) {
        uint64_t frees = a->frees, ended = a->domain->ended;
        code = a->life.forgotten ? ALLOCATOR_PASS : make_room(a, size, taken);
        if (code != a->ops->out_of_memory || round + 1 == policy.pressure_rounds ||
            a->ops->now_ns() - begin >= policy.pressure_wait_ns)
            break;
        wait_for_ends(a, size, begin);
        if ((frees == a->frees && ended == a->domain->ended) || !attainable(a, size))
            break;
    }
    if (code == a->ops->out_of_memory) /* what is idle here has gone back meanwhile */
        code = grow_by_others(a, size, taken);
    if (code == a->ops->out_of_memory)
        code = last_resort_take(a, size, taken);
    a->domain->pressing--;
    if (alone)
        pthread_mutex_unlock(&a->domain->pressure);
    return code;
}

/* Claims idle memory. If there is too little, cached blocks go back to the pool, and it claims once
 * more. */
static int claim(struct allocator *a, uint64_t size, struct block **taken)
{
    int code = claim_idle(a, size, taken);
    return code == a->ops->out_of_memory && !a->life.forgotten && thread_caches_yield(a, size)
               ? claim_idle(a, size, taken)
               : code;
}

/* May growth_find wait before it asks the driver? */
static int may_wait(const struct allocator *a, uint64_t size)
{
    return a->fences.pending || packing_is_exact(a, size) ||
           a->domain->options.garbage_collection_threshold > 0;
}

/* Tries the ways to more memory (growth.h). No thread waits for what cannot serve its request. */
int growth_find(struct allocator *a, uint64_t size, struct block **taken)
{
    /* No segment is taken from the driver if all reusable blocks would do, once merged. */
    if (pool_for(a, size) == POOL_SMALL && thread_caches_assemble(a, size) &&
        (*taken = growth_take(a, size)))
        return 0;
    if (arena_serves(a, size) && claim(a, size, taken) == 0)
        return 0;
    if (a->life.forgotten)
        return ALLOCATOR_PASS;
    if ((size > a->capacity || may_wait(a, size)) && !attainable(a, size))
        return under_pressure(a, size, 0, taken);
    if (size <= MIB && last_resort_is_cornered(a) &&
        ((*taken = wait_for(a, size, OWN_FOREVER)) || (*taken = last_resort_corner(a, size))))
        return 0;
    release_beyond_threshold(a, size);
    if ((*taken = wait_for(a, size, growth_price_ns(a->ops->costs, size))))
        return 0;
    int code = growth_by_driver(a, size, GROW_SEGMENT, taken);
    int asked = size >= PYTORCH_MIN_LARGE_ALLOC && !arena_serves(a, size);
    return code == a->ops->out_of_memory ? under_pressure(a, size, asked, taken) : code;
}
