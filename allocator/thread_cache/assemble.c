/* Merges one large block out of small cached ones, before a segment is taken from the driver.
 * Empties caches before large blocks grow, for the sake of whole chunks.
 *
 * A run is a row of neighbours that are reusable or cached: merged, they would be one block. If no
 * run is long enough, giving all cached blocks back to the pool would not help either. A look at a
 * cached block costs some 30 instructions, putting it into the pool a thousand. So only the blocks
 * of the chosen run leave their caches. */
#include <stddef.h>

#include "allocator/pool/arena.h"
#include "allocator/base/policy.h"
#include "allocator/pool/pool.h"
#include "allocator/thread_cache/locked.h"
#include "allocator/state/enter.h"

struct search {
    struct allocator *allocator;
    uint64_t size;
    struct block *first;                      /* of the run that is long enough */
    _Atomic uint64_t taken[CACHE_STEPS / 64]; /* bit: a size of which the run has cached blocks */
};

static int is_free(const struct block *block)
{
    return block && !block->pinned && (block->state == BLOCK_REUSABLE || block_is_cached(block));
}

static int is_cached(const struct block *block)
{
    return block && block_is_cached(block);
}

/* Measures a run, but only from its first cached block, so that no run is walked twice. */
static void look_at(struct search *search, struct block *block)
{
    uint64_t bytes = 0;
    if (is_cached(block->previous))
        return;
    if (is_free(block->previous)) {
        block = block->previous;
        if (is_cached(block->previous))
            return;
    }
    for (struct block *at = block; is_free(at); at = at->next)
        if ((bytes += block_size(at)) >= search->size) {
            search->first = block;
            return;
        }
}

static void look_at_chain(struct search *search, struct block *block)
{
    for (; block && !search->first; block = block->link)
        look_at(search, block);
}

static void look_at_cache(struct search *search, struct thread_cache *cache)
{
    for (int step = CACHE_STEPS; (step = step_before(cache->used, (unsigned)step)) >= 0;) {
        look_at_chain(search, cache->shelf[step].first);
        look_at_chain(search, cache->shelf[step].full);
    }
}

static void look_at_spare(struct search *search)
{
    struct allocator *a = search->allocator;
    for (int step = CACHE_STEPS;
         (step = step_before(a->shared.transfer_used, (unsigned)step)) >= 0;)
        for (uint64_t i = 0; i < a->shared.transfer[step].count; i++)
            for (struct block *batch = a->shared.transfer[step].batch[i]; batch;
                 batch = transfer_next(batch))
                look_at_chain(search, batch);
}

/* Marks the cached blocks of the run: no cache owns them from now on. */
static void mark(struct search *search)
{
    uint64_t bytes = 0;
    for (struct block *block = search->first; bytes < search->size; block = block->next) {
        uint64_t size = block_size(block);
        bytes += size;
        if (!is_cached(block))
            continue;
        block_claim(block, CLAIM_NOBODY);
        search->taken[step_of(size) / 64] |= (uint64_t)1 << step_of(size) % 64;
    }
}

/* Puts the blocks of a chain that are still cached before `rest`. Returns all of it. */
static struct block *kept(struct block *block, struct block *rest)
{
    for (struct block *next; block; block = next) {
        next = block->link;
        if (!block_is_cached(block))
            continue;
        block->link = rest;
        rest = block;
    }
    return rest;
}

/* Builds a shelf anew, without the marked blocks. */
static void sort_shelf(struct thread_cache *cache, unsigned step)
{
    struct shelf *shelf = &cache->shelf[step];
    uint64_t size = step_size(step), most = batch_blocks(size);
    uint64_t before = (shelf->first ? most - shelf->room : 0) + (shelf->full ? most : 0), after = 0;
    struct block *rest = kept(shelf->first, kept(shelf->full, NULL));
    *shelf = (struct shelf){.room = most};
    for (struct block *next; rest; rest = next, after++) {
        next = rest->link;
        if (!shelf->room) /* once at most: some blocks of two full chains are gone */
            *shelf = (struct shelf){.full = shelf->first, .room = most};
        rest->link = shelf->first;
        shelf->first = rest;
        shelf->room--;
    }
    thread_cache_moved(cache, size, (int64_t)(after - before));
    thread_cache_forget_limits(cache);
}

static void sort_spare(struct allocator *a, unsigned step)
{
    struct block *rest = NULL, *batch;
    uint64_t size = step_size(step), most = batch_blocks(size);
    while ((batch = transfer_take(a, NULL, size)))
        rest = kept(batch, rest);
    while ((batch = rest)) {
        struct block *last = batch;
        uint64_t count = 1;
        for (; count < most && last->link; count++)
            last = last->link;
        rest = last->link;
        last->link = NULL;
        transfer_put(a, NULL, batch, count);
    }
}

static void sort(struct search *search)
{
    struct allocator *a = search->allocator;
    for (int step = CACHE_STEPS; (step = step_before(search->taken, (unsigned)step)) >= 0;) {
        sort_spare(a, (unsigned)step);
        for (struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
            if (cache->allocator == a && step_is_used(cache->used, (unsigned)step))
                sort_shelf(cache, (unsigned)step);
    }
}

static void take_out(struct block *block)
{
    struct allocator *a = block->segment->allocator;
    if (block->state == BLOCK_REUSABLE)
        pool_remove(a, block);
    else
        thread_cache_book_out(a, block_size(block));
}

static void merge(struct block *block, uint64_t size)
{
    take_out(block);
    while (block_size(block) < size) {
        take_out(block->next);
        block_join(block, block->next);
    }
    block->state = BLOCK_PENDING;
    pool_merge(block->segment->allocator, block);
}

#define SEGMENT (2 * MIB) /* of small blocks */

/* Is a look due? Where threads contend, all of them wait for it, and it reads cache lines that are
 * far away. Then it is due only when an eighth more is reserved than at the last look, or that is
 * less than a segment. */
static int is_due(struct allocator *a)
{
    uint64_t reserved = stats_current(a->stats, STAT_reserved_bytes, SMALL_POOL);
    uint64_t before = a->caches.looked_at, more = before / policy.look_again_part;
    if (caches_are_contended(a) && more >= SEGMENT && reserved >= before &&
        reserved < before + more)
        return 0;
    a->caches.looked_at = reserved;
    return 1;
}

/* Is a little more memory cheaper than looks that keep stopping other threads? Not where little
 * memory is left, or was short once, or much is cached already. */
static int is_memory_cheaper(const struct allocator *a)
{
    uint64_t reserved = allocator_reserved(a);
    uint64_t cached = stats_current(a->stats, STAT_inactive_split_bytes, SMALL_POOL);
    int is_short = reserved > a->capacity - a->capacity / policy.looks_left_part ||
                   stats_get(a->stats, COUNTER_num_alloc_retries);
    return a->caches.looks >= policy.looks && !is_short &&
           cached + SEGMENT <= reserved / policy.looks_cached_part;
}

/* Where threads share, their caches held what was missing: they may hold less beyond the least. */
static void note_found(struct allocator *a)
{
    if (!caches_are_shared(a))
        return;
    a->caches.looks++;
    thread_cache_hold_less(a);
}

int thread_caches_assemble(struct allocator *a, uint64_t size)
{
    struct search search = {.allocator = a, .size = size};
    if (!is_due(a))
        return 0;
    if (is_memory_cheaper(a)) {
        a->caches.looks = 0;
        return 0;
    }
    thread_caches_stop(a->domain, a->stats);
    look_at_spare(&search);
    for (struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
        if (cache->allocator == a)
            look_at_cache(&search, cache);
    if (search.first) {
        mark(&search);
        sort(&search);
        merge(search.first, size);
        note_found(a);
    }
    thread_caches_go_on(a->domain, a->stats);
    return search.first != NULL;
}

/* One cached block is enough to keep a chunk from being idle. So all go back, if they lie in
 * chunks. */
int thread_caches_yield(struct allocator *a, uint64_t size)
{
    int64_t cached = (int64_t)stats_current(a->stats, STAT_inactive_split_bytes, SMALL_POOL);
    uint64_t chunks = stats_get(a->stats, COUNTER_num_device_alloc);
    uint64_t grown_ns = (chunks - a->caches.yielded_at) * device_handle_ns(a->ops->costs);
    if (!arena_serves(a, policy.apart_most) || arena_is_apart(a->arena, size))
        return 0;
    if (cached <= 0 || grown_ns < (uint64_t)cached / MIB * policy.yield_ns)
        return 0;
    a->caches.yielded_at = chunks;
    return thread_caches_empty(a) > 0;
}
