/* Thread caches: the way without the lock, and why it is correct.
 *
 * 1. Entry. A thread's `sequence` is odd while the thread is in its own cache. The owner
 *    enters with a plain store of the sequence, then reads `gate`. A thread that wants the blocks of
 *    others holds the lock and shuts their gates. Then it makes all threads pass a barrier
 *    (membarrier), and waits until their sequences are even. So either
 *    the owner sees the gate shut and turns back, or the other thread sees the owner inside and waits.
 *    The owner pays a plain store and a plain load. The other thread pays for the barrier, once for
 *    all threads. A gate may stay shut for longer: the owner then takes the lock each time.
 * 2. Ownership. `claim` is address and right in one word. A free looks the block up in the map
 *    without the lock. The look may miss the block: then the lock decides. It may also find a block
 *    that is none any longer: then the claim does not match. The free takes the block with a
 *    compare-and-swap from EASY to CACHED. Of two frees of one block one wins, and a free of an
 *    address inside a block finds nothing. A block in the map is not merged, split or forgotten
 *    while it is EASY or CACHED, except with all caches stopped.
 * 3. Reuse. As in lane_free: a block that is not reusable at once does not enter a cache. Work that
 *    used the block was submitted before this free read the lane's word. So whatever changes the
 *    word later records a mark that covers this work, or knows that it has finished. The driver's
 *    own lock orders a submission before the read against a mark after the change. A reusable block
 *    stays reusable whatever becomes of the lane, as if it lay in the pool.
 * 4. Numbers. Each thread counts in a row of its own, and readers add the rows. A peak is passed
 *    only under the lock: a thread knows how far below the peaks it is, and takes the lock to pass
 *    one. It also takes the lock when it has counted alone_limit alone.
 * 5. Exchange. A full shelf gives a batch to the transfer cache, and an empty one takes a batch
 *    from there. The thread is in its own cache then, without the lock: so rule 1 holds, and no
 *    number changes. A thread holds the list of a size by an atomic change of its head, for a few
 *    instructions.
 * 6. Events. If two threads noted events of one address alone, their order would be lost. So a
 *    block that one thread has noted goes to another thread only under the lock. test/model
 *    explores rules 1 to 3 and 5.
 * 7. Prefetch for frees from another thread. Blocks are usually freed in the order in which they
 *    were allocated. Each thread logs its last allocations in a ring (`taken`) that any thread may
 *    read at any time. When a thread frees two consecutive entries of another thread's ring, it
 *    prefetches the block TAKEN_AHEAD entries ahead. Otherwise the free would wait for a cache line
 *    from the other core. The ring is only a hint, and a wrong one costs time alone: the
 *    compare-and-swap on `claim` decides. */
#include "allocator/base/asked_site.h"
#include "allocator/thread_cache/own.h"
#include "allocator/thread_cache/record_alone.h"
#include "allocator/thread_cache/limits.h"
#include "allocator/reuse/lane_free.h"
#include "allocator/thread_cache/shelves.h"

struct block *_Atomic thread_cache_nowhere[TAKEN_AHEAD + 1];

/* Enters the cache through this gate. Returns 0 if the gate is not open: then the thread must turn
 * back, else leave. */
static inline __attribute__((always_inline)) int enter(struct thread_cache *cache, int gate)
{
    stat_increase(&cache->sequence, 1);
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&cache->gate, memory_order_acquire) != gate)
        return 0;
    stat_increase(&cache->row->sequence, 1); /* for readers of the page */
    atomic_signal_fence(memory_order_seq_cst);
    return 1;
}

static inline __attribute__((always_inline)) void leave(struct thread_cache *cache)
{
    stat_release(&cache->row->sequence, 1);
    stat_release(&cache->sequence, 1);
}

/* Returns the kind of gate that is open. */
static int turn_back(struct thread_cache *cache)
{
    stat_release(&cache->sequence, 1);
    return atomic_load_explicit(&cache->gate, memory_order_relaxed);
}

/* As stat_bin_of, without a branch. The block's size keeps the bin below CACHE_BINS. */
static unsigned bin_of(uint64_t requested)
{
    return ((unsigned)__builtin_clzll(2 * (requested - 1) + 1) ^ 63) % 32;
}

static inline __attribute__((always_inline)) void count(struct thread_cache *cache, int taken,
                                                        uint64_t size, uint64_t requested)
{
    struct cache_row *row = cache->row;
    unsigned at = bin_of(requested);
    struct cache_bin *bin = &row->bin[at];
    cache->touched |= 1u << at;
    if (taken) {
        stat_increase(&row->allocated_bytes, size);
        stat_increase(&bin->allocated, 1);
        stat_increase(&bin->allocated_requested, requested);
    } else {
        stat_increase(&bin->freed_requested, requested);
        stat_increase(&bin->freed, 1);
        stat_increase(&row->freed_bytes, size);
    }
}

static inline void note_taken(struct thread_cache *cache, struct block *block)
{
    struct block *_Atomic *at = &cache->taken[cache->takes];
    cache->takes = (cache->takes + 1) % TAKEN;
    atomic_store_explicit(at + TAKEN_AHEAD, NULL, memory_order_relaxed);
    atomic_store_explicit(at, block, memory_order_relaxed);
    block->noted = at;
}

/* Prefetches (rule 7), after a free of a block in the ring of another thread, or in none. */
__attribute__((noinline)) static void foresee(struct thread_cache *cache, const struct block *block)
{
    struct block *_Atomic *at = block->noted;
    int foreseen = cache->next_taken == block;
    cache->next_taken = atomic_load_explicit(at + 1, memory_order_relaxed);
    if (!foreseen)
        return;
    cache->expected = cache->next_taken;
    block_expect(atomic_load_explicit(at + TAKEN_AHEAD, memory_order_relaxed));
}

static inline int took(const struct thread_cache *cache, const struct block *block)
{
    return (uintptr_t)block->noted - (uintptr_t)cache->taken < sizeof cache->taken;
}

static inline __attribute__((always_inline)) uint64_t take_out(struct thread_cache *cache,
                                                               struct shelf *shelf, uint64_t size,
                                                               uint64_t requested, enum record what)
{
    struct block *block = shelf->first;
    shelf->first = block->link;
    block_expect(shelf->first);
    shelf->room++;
    count(cache, 1, size, requested);
    block->requested = (uint32_t)requested;
    record_alone(cache, block, EVENT_alloc, what);
    note_taken(cache, block);
    uint64_t address = block_claim_again(block, CLAIM_EASY);
    leave(cache);
    return address;
}

/* The slow ways out of `serve`. */
__attribute__((noinline)) static uint64_t serve_nothing(struct thread_cache *cache,
                                                        uint64_t requested)
{
    leave(cache);
    asked_return(requested);
    return 0;
}

__attribute__((noinline)) static uint64_t serve_at_limits(struct thread_cache *cache, uint64_t size,
                                                          uint64_t requested)
{
    if (shelf_of(cache, size)->first || (!cache->noted && thread_cache_fill(cache, size))) {
        if (!cache_takes(cache, size, requested)) {
            thread_cache_set_limits(cache);
            if (!cache_takes(cache, size, requested)) {
                thread_cache_forget_limits(cache);
                return serve_nothing(cache, requested);
            }
        }
        return take_out(cache, shelf_of(cache, size), size, requested, record_of(cache));
    }
    return serve_nothing(cache, requested);
}

/* The thread is in its cache. */
static inline __attribute__((always_inline)) uint64_t serve(struct thread_cache *cache,
                                                            const struct allocator *a,
                                                            uint64_t size, uint64_t requested,
                                                            enum record what)
{
    if (cache->allocator != a || !record_has_room(cache, what) ||
        atomic_load_explicit(&a->slow, memory_order_relaxed) == SLOW_ALL)
        return serve_nothing(cache, requested);
    struct shelf *shelf = shelf_of(cache, size);
    return shelf->first && cache_takes(cache, size, requested)
               ? take_out(cache, shelf, size, requested, what)
               : serve_at_limits(cache, size, requested);
}

static uint64_t in_grains(uint64_t bytes)
{
    return (bytes + BLOCK_GRAIN - 1) / BLOCK_GRAIN * BLOCK_GRAIN;
}

/* Serves requests that are recorded, or rounded by roundup_power2_divisions. */
static uint64_t serve_specially(struct thread_cache *cache, const struct allocator *a,
                                uint64_t requested)
{
    const struct options *options = &a->domain->options;
    int in_steps = options->roundup_power2_divisions[0] > 1;
    uint64_t size = in_steps ? options_round(options, requested) : in_grains(requested);
    if (size > CACHE_MOST) {
        asked_return(requested);
        return 0;
    }
    if (!enter(cache, GATE_SPECIAL)) {
        turn_back(cache);
        asked_return(requested);
        return 0;
    }
    return cache->noted ? serve(cache, a, size, requested, RECORD_EVENTS)
                        : serve(cache, a, size, requested, RECORD_NOTHING);
}

/* The plain gate is not open. */
__attribute__((noinline)) static uint64_t serve_otherwise(struct thread_cache *cache,
                                                          const struct allocator *a, uint64_t bytes)
{
    if (turn_back(cache) == GATE_SPECIAL)
        return serve_specially(cache, a, bytes);
    asked_return(bytes);
    return 0;
}

/* The call site is to be looked at: nothing is served alone. Where no sites are recorded, the thread
 * goes on for another ASKED_NEVER bytes. */
__attribute__((cold, noinline)) static uint64_t serve_looked_at(struct allocator *a, uint64_t bytes)
{
    asked_return(bytes);
    if (a->domain->sites)
        return 0;
    asked_by.left = ASKED_NEVER;
    return allocator_hit_alone(a, bytes);
}

DIRECT uint64_t allocator_hit_alone(struct allocator *a, uint64_t bytes)
{
    struct thread_cache *cache = thread_cache_own;
    if (!cache || bytes - 1 >= CACHE_MOST)
        return 0;
    if ((asked_by.left -= (int64_t)bytes) < 0) /* one instruction that writes, as in cache_takes */
        return serve_looked_at(a, bytes);
    return enter(cache, GATE_PLAIN) ? serve(cache, a, in_grains(bytes), bytes, RECORD_NOTHING)
                                    : serve_otherwise(cache, a, bytes);
}

/* Claims the block at `address` for this cache. Returns NULL if it cannot have it. If another
 * thread noted the allocation alone, the free is noted under the lock, which takes the other
 * thread's event first. */
static inline __attribute__((always_inline)) struct block *claim(struct thread_cache *cache,
                                                                 uint64_t address, enum record what)
{
    struct block *block = cache->expected;
    uint64_t easy = address | CLAIM_EASY;
    if (!block || atomic_load_explicit(&block->claim, memory_order_relaxed) != easy)
        block = block_of_listed(page_map_glance(&cache->domain->listed, address));
    if (block && address % CLAIM_KINDS == 0 && /* else they would be taken for the claim's kind */
        atomic_compare_exchange_strong(&block->claim, &easy, address | CLAIM_CACHED)) {
        if (block->owner == cache->number &&
            (what == RECORD_NOTHING || !block->noted_by || block->noted_by == cache->mark))
            return block;
        block_claim(block, CLAIM_EASY);
    }
    cache->found = block;
    return NULL;
}

static inline __attribute__((always_inline)) void
put_in(struct thread_cache *cache, struct shelf *shelf, struct block *block, enum record what)
{
    count(cache, 0, block_small_size(block), block->requested);
    record_alone(cache, block, EVENT_free, what);
    cache->expected = NULL;
    if (!took(cache, block))
        foresee(cache, block);
    block->link = shelf->first;
    shelf->first = block;
    shelf->room--;
}

__attribute__((noinline)) static int keep_at_limits(struct thread_cache *cache, struct block *block)
{
    uint64_t size = block_small_size(block);
    int keeps = !cache->noted && thread_cache_room(cache, size);
    if (keeps && !cache_gives(cache, size, block->requested)) {
        thread_cache_set_limits(cache);
        keeps = cache_gives(cache, size, block->requested);
        if (!keeps)
            thread_cache_forget_limits(cache);
    }
    if (keeps)
        put_in(cache, shelf_of(cache, size), block, record_of(cache));
    else
        block_claim(block, CLAIM_EASY);
    leave(cache);
    return keeps;
}

/* The thread is in its cache, which serves an allocator. */
static inline __attribute__((always_inline)) int take_back(struct thread_cache *cache,
                                                           uint64_t address, enum record what)
{
    struct allocator *a = cache->allocator;
    struct block *block = NULL;
    if (!atomic_load_explicit(&a->slow, memory_order_relaxed) && lane_free_alone(a) &&
        record_has_room(cache, what) && (block = claim(cache, address, what))) {
        struct shelf *shelf = shelf_of(cache, block_small_size(block));
        if (!shelf->room || !cache_gives(cache, block_small_size(block), block->requested))
            return keep_at_limits(cache, block);
        put_in(cache, shelf, block, what);
    }
    leave(cache);
    return block != NULL;
}

/* The plain gate is not open. In a child of a bare clone the cache is the parent's, and wiped: all
 * gates are shut. */
__attribute__((noinline)) static int take_back_otherwise(struct thread_cache *cache,
                                                         uint64_t address)
{
    if (turn_back(cache) != GATE_SPECIAL)
        return 0;
    if (!enter(cache, GATE_SPECIAL)) {
        turn_back(cache);
        return 0;
    }
    return cache->noted ? take_back(cache, address, RECORD_EVENTS)
                        : take_back(cache, address, RECORD_NOTHING);
}

DIRECT int domain_free_alone(uint64_t address)
{
    struct thread_cache *cache = thread_cache_own;
    if (!cache || cache->last_freed == address)
        return 0;
    return enter(cache, GATE_PLAIN) ? take_back(cache, address, RECORD_NOTHING)
                                    : take_back_otherwise(cache, address);
}
