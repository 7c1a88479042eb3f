/* Allocating and freeing: the order in which memory is looked for, and the books. */
#include "allocator/allocator.h"

#include <assert.h>
#include <stddef.h>
#include <time.h>

#include "allocator/pool/arena_parts.h"
#include "allocator/reuse/fence.h"
#include "allocator/last_freed.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/pool.h"
#include "allocator/state/record.h"
#include "allocator/segment/segment.h"
#include "allocator/thread_cache/locked.h"

void allocator_enter(struct allocator *a)
{
    domain_lock(a->domain);
    stats_begin(a->stats);
}

void allocator_call(struct allocator *a)
{
    a->calls++;
    allocator_leave(a);
}

void allocator_return(struct allocator *a)
{
    allocator_enter(a);
    a->calls--;
}

/* What frees without the lock must know. */
static void note_slow(struct allocator *a)
{
    int slow = a->error | a->forgotten | a->no_events ? SLOW_ALL
               : allocator_owes_host(a)               ? SLOW_FREES
                                                      : SLOW_NOBODY;
    if (slow != atomic_load_explicit(&a->slow, memory_order_relaxed))
        atomic_store_explicit(&a->slow, slow, memory_order_relaxed);
}

static void before_leaving(struct allocator *a)
{
    stats_note_peaks(a->stats);
    note_slow(a);
    assert(allocator_is_valid(a));
    stats_end(a->stats);
}

void allocator_leave(struct allocator *a)
{
    before_leaving(a);
    domain_unlock(a->domain);
}

/* What making and giving back `bytes` costs, in ns, so that waiting for a fence as long costs no more:
 * cudaMalloc + cudaFree on an H200 (about 80 us, and 0.9 us for each MiB). */
static uint64_t growth_price_ns(uint64_t bytes)
{
    return 80000 + bytes / MIB * 900;
}

/* The cache: what is reusable, or became so since. */
static struct block *look(struct allocator *a, uint64_t size)
{
    a->mallocs++;
    if (a->pending)
        fence_note_turn(a, a->ops->thread_id());
    fence_poll(a, 0);
    struct block *block = size <= CACHE_MOST ? thread_cache_find(a, size) : NULL;
    if (block)
        return block;
    block = pool_take(a, size);
    if (!block && a->pending) {
        fence_poll(a, 1);
        block = pool_take(a, size);
    }
    if (block && size <= CACHE_MOST)
        thread_cache_stock(a, size);
    return block;
}

uint64_t allocator_give_back(struct allocator *a, uint64_t bytes, uint64_t fences_ns,
                             uint64_t idle_ns)
{
    if (!allocator_visit(a))
        return 0;
    fence_flush_deferred(a, fences_ns != 0);
    thread_caches_empty(a);
    if (fences_ns)
        fence_wait_for(a, UINT64_MAX / 4, fences_ns);
    fence_poll(a, 1);
    uint64_t released = segment_release_idle(a, bytes, idle_ns);
    allocator_visit_over(a);
    return released;
}

/* Gives back what all contexts of this device have idle, at least `bytes` if there is so much. With
 * a limit on the wait the frees of other contexts are waited for, too: natively what they freed is
 * there when they return. */
static uint64_t release(struct allocator *a, uint64_t bytes, uint64_t timeout_ns)
{
    uint64_t released = 0, fences_ns = timeout_ns ? DEVICE_FOREVER : 0;
    for (struct allocator *other = a->domain->first; other && released < bytes;
         other = other->next) {
        if (other == a && !a->forgotten)
            released += segment_release_idle(a, bytes - released, timeout_ns);
        else if (other != a && other->stats == a->stats)
            released += allocator_give_back(other, bytes - released, fences_ns, timeout_ns);
    }
    return released;
}

/* The device is full, or the limit reached. What is idle at once goes first: a context may be busy
 * for long. A small request has part of a large hole before it waits for more than natively. */
static int make_room(struct allocator *a, uint64_t size, struct block **taken)
{
    int code;
    fence_flush_deferred(a, 1);
    thread_caches_empty(a);
    if ((*taken = pool_take(a, size)) ||
        (*taken = fence_wait_for(a, size, size > MIB ? DEVICE_FOREVER : OWN_FOREVER)) ||
        a->forgotten)
        return *taken ? 0 : ALLOCATOR_PASS;
    if ((a->domain->first->next || size <= MIB) && release(a, size, 0) &&
        (code = segment_grow(a, size, GROW_SEGMENT, taken)) != a->ops->out_of_memory)
        return code;
    if (size <= MIB && !a->forgotten &&
        ((*taken = native_corner(a, size)) || (*taken = fence_wait_for(a, size, DEVICE_FOREVER))))
        return 0;
    if (release(a, size, PRESSURE_WAIT_NS) &&
        (code = segment_grow(a, size, GROW_SEGMENT, taken)) != a->ops->out_of_memory)
        return code;
    release(a, UINT64_MAX, PRESSURE_WAIT_NS);
    stats_count(a->stats, COUNTER_num_alloc_retries, 1);
    return segment_grow(a, size, GROW_LEAST, taken);
}

/* One thread at a time, else what one gives back another takes; and again while others free, and
 * when a context has ended. A thread that waits here too long goes on alone: it may be the one that
 * the others wait for. */
static int under_pressure(struct allocator *a, uint64_t size, struct block **taken)
{
    struct timespec limit;
    int code;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += PRESSURE_WAIT_NS / 1000000000;
    a->domain->pressing++;
    allocator_leave(a);
    int alone = pthread_mutex_timedlock(&a->domain->pressure, &limit) == 0;
    allocator_enter(a);
    uint64_t begin = a->ops->now_ns();
    for (int round = 0;; round++) {
        uint64_t frees = a->frees, ended = a->domain->ended;
        code = a->forgotten ? ALLOCATOR_PASS : make_room(a, size, taken);
        if (code != a->ops->out_of_memory || round == 3 ||
            a->ops->now_ns() - begin >= PRESSURE_WAIT_NS)
            break;
        allocator_wait_for_ends(a, begin);
        if (frees == a->frees && ended == a->domain->ended)
            break;
    }
    if (code == a->ops->out_of_memory)
        code = native_last_try(a, size, taken);
    a->domain->pressing--;
    if (alone)
        pthread_mutex_unlock(&a->domain->pressure);
    return code;
}

/* What is idle elsewhere, were it not for what is cached. */
static int claim(struct allocator *a, uint64_t size, struct block **taken)
{
    int code = arena_claim(a, size, taken);
    return code == a->ops->out_of_memory && !a->forgotten && thread_caches_yield(a, size)
               ? arena_claim(a, size, taken)
               : code;
}

/* The ways to more memory, cheapest first. 0 and *taken (in no pool, cut to size), or what the
 * driver said. */
static int look_further(struct allocator *a, uint64_t size, struct block **taken)
{
    /* No segment is taken from the driver if all that is reusable, merged, would do. */
    if (pool_for(a, size) == POOL_SMALL && thread_caches_make(a, size) &&
        (*taken = pool_take(a, size)))
        return 0;
    if (arena_serves(a, size) && claim(a, size, taken) == 0)
        return 0;
    if (a->forgotten)
        return ALLOCATOR_PASS;
    if (size <= MIB && native_is_cornered(a) &&
        ((*taken = fence_wait_for(a, size, OWN_FOREVER)) || (*taken = native_corner(a, size))))
        return 0;
    segment_collect_garbage(a, size);
    if ((*taken = fence_wait_for(a, size, growth_price_ns(size))))
        return 0;
    int code = segment_grow(a, size, GROW_SEGMENT, taken);
    return code == a->ops->out_of_memory ? under_pressure(a, size, taken) : code;
}

static int hand_out(struct allocator *a, struct block *block, uint64_t bytes, uint64_t *address)
{
    enum stat_pool stat = block_stat(block);
    uint64_t size = block_size(block);
    if (block_list(block)) {
        pool_merge(a, block);
        return ALLOCATOR_PASS;
    }
    if (block->segment->arena)
        arena_note_idle(block->segment->arena);
    if (block->segment->arena && size > CACHE_MOST)
        thread_cache_settle_large(a, size, bytes);
    block->state = BLOCK_ALLOCATED;
    block->noted_by = block->shared = block->sync_memops = 0;
    block->noted = thread_cache_nowhere;
    block->name = 0;
    block_request(block, bytes);
    native_count(a, size, 1);
    stats_hand_out(a->stats, stat, size, bytes);
    stats_histogram(a->stats, bytes, 1);
    record_block(block, EVENT_alloc);
    block_claim_for_program(block);
    *address = block_address(block);
    return 0;
}

/* Finds a block of `size`, or grows by one that fits; ALLOCATOR_MISS if `further` is not wanted. */
static int find(struct allocator *a, uint64_t bytes, uint64_t size, int further,
                struct block **block)
{
    uint64_t segments = stats_get(a->stats, COUNTER_num_device_alloc);
    if (a->error || a->forgotten)
        return ALLOCATOR_PASS;
    if (!a->domain->options.cache)
        return further ? segment_grow(a, bytes, GROW_NATIVE, block) : ALLOCATOR_MISS;
    int code = 0;
    if (further && size > MIB)
        native_note(a, size);
    if (!(*block = look(a, size))) {
        if (!further)
            return ALLOCATOR_MISS;
        code = a->forgotten ? ALLOCATOR_PASS : look_further(a, size, block);
        if (code == 0)
            pool_split(a, *block, size);
    } else if (!further && size > MIB) {
        native_note(a, size);
    }
    if (code == 0 && stats_get(a->stats, COUNTER_num_device_alloc) == segments)
        stats_count(a->stats, COUNTER_num_hits, 1);
    return code;
}

/* What was kept is not for it. The lock is held. */
static int allocate(struct allocator *a, uint64_t bytes, uint64_t *address, int further)
{
    uint64_t size = options_round(&a->domain->options, bytes);
    struct block *block = NULL;
    if (size > UINT64_MAX / 2)
        return ALLOCATOR_PASS;
    if (a->domain->kept.block)
        kept_put(a->domain);
    stats_begin(a->stats);
    /* Else hand_out does. A forgotten one's arena, which pool_for asks for, is buried unlocked. */
    if (a->forgotten || a->pending || size <= CACHE_MOST || pool_for(a, size) != POOL_MAPPED)
        thread_cache_settle(a);
    int code = find(a, bytes, size, further, &block);
    if (code == 0)
        code = hand_out(a, block, bytes, address);
    if (code == a->ops->out_of_memory) {
        stats_count(a->stats, COUNTER_num_ooms, 1);
        record_oom(a, bytes);
    }
    before_leaving(a);
    return code;
}

int allocator_malloc(struct allocator *a, uint64_t bytes, uint64_t *address)
{
    lock_take(&a->domain->lock);
    int code = kept_again(a, bytes, address) ? 0 : allocate(a, bytes, address, 1);
    domain_unlock(a->domain);
    return code;
}

void allocator_refused(struct allocator *a, uint64_t bytes)
{
    domain_lock(a->domain);
    stats_begin(a->stats);
    stats_count(a->stats, COUNTER_num_ooms, 1);
    record_oom(a, bytes);
    stats_end(a->stats);
    domain_unlock(a->domain);
}

int allocator_hit(struct allocator *a, uint64_t bytes, uint64_t *address)
{
    lock_take(&a->domain->lock);
    int code = kept_again(a, bytes, address) ? 0 : allocate(a, bytes, address, 0);
    domain_unlock(a->domain);
    return code;
}

/* Is `address` in memory of ours that the program does not hold? The lock is held. */
static int unknown_or_invalid(struct domain *domain, uint64_t address)
{
    struct segment *segment = segment_holding(domain, address);
    if (!segment)
        return ALLOCATOR_UNKNOWN;
    stats_count(segment->allocator->stats, COUNTER_num_double_frees, 1);
    return ALLOCATOR_INVALID;
}

static int settle(struct allocator *a, struct block *block, enum free_kind kind)
{
    int code = 0;
    if (kind == FREED_NATIVE && allocator_owes_host(a))
        code = fence_wait_for_host_work(a);
    if (a->forgotten)
        return code; /* and the block with it */
    if (a->domain->options.cache) {
        int error = fence_free(a, block, kind == FREED_ASYNC);
        return code ? code : error;
    }
    block_becomes_reusable(block); /* whole, so now idle */
    if (kind == FREED_NATIVE && (!segment_release(block->segment) || a->forgotten))
        return 0;
    segment_hand_over(block->segment); /* the driver's answer is the program's */
    return ALLOCATOR_PASS;
}

/* The block that the program holds at `address`; from here on it does not, whatever other threads
 * do. */
static struct block *held_at(struct domain *domain, uint64_t address)
{
    struct thread_cache *cache = thread_cache_of(domain);
    struct block *block = cache ? cache->found : NULL; /* perhaps the one */
    uint64_t claim = block ? atomic_load_explicit(&block->claim, memory_order_relaxed) : 0;
    if (claim - claim % CLAIM_KINDS != address)
        block = block_of_listed(map_find(&domain->listed, address));
    if (!block)
        return NULL;
    if (block_claimed(block) == CLAIM_HELD) { /* only the lock's holder changes it */
        block_claim(block, CLAIM_NOBODY);
        return block;
    }
    uint64_t easy = address | CLAIM_EASY;
    return atomic_compare_exchange_strong(&block->claim, &easy, address | CLAIM_NOBODY) ? block
                                                                                        : NULL;
}

/* Is its free one of which no number passes a peak, whatever this thread counted alone? If it is
 * reusable by a fence only, fence_free settles. */
static int raises_no_peak(const struct block *block)
{
    const struct allocator *a = block->segment->allocator;
    return block->segment->arena && block_size(block) > CACHE_MOST && !a->pending &&
           !allocator_owes_host(a);
}

/* A block that the program held until now; gives the lock back. */
__attribute__((noinline)) static int free_held(struct block *block, enum free_kind kind)
{
    struct allocator *a = block->segment->allocator;
    enum stat_pool stat = block_stat(block);
    stats_begin(a->stats);
    if (kind == FREED_NATIVE && !raises_no_peak(block))
        thread_cache_settle(a);
    native_count(a, block_size(block), -1);
    stats_subtract(a->stats, STAT_allocation, stat, 1);
    stats_subtract(a->stats, STAT_allocated_bytes, stat, block_size(block));
    stats_histogram(a->stats, block_requested(block), -1);
    record_block(block, EVENT_free);
    block->state = BLOCK_PENDING;
    block->link = NULL;
    int code = 0;
    if (kind == FREED_LATE)
        stats_count(a->stats, COUNTER_num_late_frees, 1);
    else
        code = settle(a, block, kind);
    note_slow(a);
    assert(allocator_is_valid(a));
    stats_end(a->stats);
    domain_unlock(a->domain);
    return code;
}

int domain_free(struct domain *domain, uint64_t address, enum free_kind kind)
{
    domain_lock(domain);
    struct block *block = held_at(domain, address);
    if (block && (kind != FREED_NATIVE || !kept_free(block)))
        return free_held(block, kind);
    int code = block ? 0 : unknown_or_invalid(domain, address);
    domain_unlock(domain);
    return code;
}
