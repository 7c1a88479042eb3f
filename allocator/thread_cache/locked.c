/* Thread caches: what is done under the lock. The rules are at the head of own.c. */
#include <stddef.h>

#include "allocator/pool/pool.h"
#include "allocator/base/policy.h"
#include "allocator/pool/reusable.h"
#include "allocator/thread_cache/own.h"
#include "allocator/thread_cache/locked.h"
#include "stats/os/pause.h"
#include "allocator/thread_cache/shelves.h"

void thread_cache_book_out(struct allocator *a, uint64_t size)
{
    uint64_t reusable = stats_get(a->stats, COUNTER_reusable_bytes);
    stats_set(a->stats, COUNTER_reusable_bytes, reusable - size);
    stats_subtract(a->stats, STAT_inactive_split, SMALL_POOL, 1);
    stats_subtract(a->stats, STAT_inactive_split_bytes, SMALL_POOL, size);
}

/* Moves a cached block to the pool. */
static void pool_back(struct block *block)
{
    struct allocator *a = block->segment->allocator;
    thread_cache_book_out(a, block_size(block));
    block_claim(block, CLAIM_NOBODY);
    block->state = BLOCK_PENDING;
    pool_merge(a, block);
}

/* Moves a chain of cached blocks to the pool. Returns bytes. */
static uint64_t pool_chain(struct block *block)
{
    uint64_t bytes = 0;
    for (struct block *next; block; block = next) {
        next = block->link;
        bytes += block_size(block);
        pool_back(block);
    }
    return bytes;
}

/* Folds what the cache counted, and moves what it holds to the pool of its allocator, whose numbers
 * are being changed. Returns bytes. */
static uint64_t empty(struct thread_cache *cache)
{
    uint64_t bytes = 0;
    thread_cache_fold(cache);
    for (int step; (step = step_before(cache->used, CACHE_STEPS)) >= 0;) {
        struct shelf *shelf = &cache->shelf[step];
        bytes += pool_chain(shelf->first) + pool_chain(shelf->full);
        *shelf = (struct shelf){0};
        cache->used[step / 64] &= ~((uint64_t)1 << step % 64);
    }
    thread_cache_forget_limits(cache);
    cache->take_bytes = -cache->least_bytes;
    cache->take_count = -cache->least_count;
    cache->give_bytes = -1;
    cache->folded_count = cache->folded_bytes = 0;
    atomic_fetch_add_explicit(&cache->allocator->shared.transfer_weight, cache->spared,
                              memory_order_relaxed);
    cache->spared = 0;
    return bytes;
}

static uint64_t empty_spare(struct allocator *a)
{
    uint64_t bytes = 0;
    for (int step; (step = step_before(a->shared.transfer_used, CACHE_STEPS)) >= 0;) {
        bytes += pool_chain(transfer_take(a, NULL, step_size((unsigned)step)));
        transfer_is_asked(a, (unsigned)step); /* clears the size's bit, if the list is empty */
    }
    return bytes;
}

/* Moves some blocks of a batch to the pool. The others return to the transfer cache, if that has
 * room. */
static void trim(struct allocator *a, struct thread_cache *cache, struct block *first)
{
    uint64_t left = first->requested;
    for (uint64_t i = 0; i < policy.trim_blocks && first; i++, left--) {
        struct block *next = first->link;
        pool_back(first);
        first = next;
    }
    if (first && transfer_give(a, &cache->spared, first, left))
        pool_chain(first);
}

/* Moves some blocks of a size that no thread takes from the transfer cache to the pool: few, since
 * one request pays for it. The hand goes on to the next size at each look, so that all sizes come
 * between two looks at one. */
static void trim_spare(struct allocator *a, struct thread_cache *cache)
{
    for (int i = 0, step; i < policy.trim_looks; i++) {
        if ((step = step_before(a->shared.transfer_used, a->caches.hand)) < 0 &&
            (step = step_before(a->shared.transfer_used, CACHE_STEPS)) < 0)
            return;
        a->caches.hand = (unsigned)step;
        if (transfer_is_asked(a, (unsigned)step))
            return;
        struct block *first = transfer_take(a, &cache->spared, step_size((unsigned)step));
        if (first) {
            trim(a, cache, first);
            return;
        }
    }
}

static int serves(const struct thread_cache *cache, const struct device_stats *stats)
{
    return cache->allocator && (!stats || cache->allocator->stats == stats);
}

/* Counts the caches that serve the allocator. Their number decides how much the transfer cache may
 * hold, and how much others may have counted while a thread passes a peak. */
static void note_sharers(struct allocator *a)
{
    unsigned caches = 0;
    for (const struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
        caches += cache->allocator == a;
    a->caches.sharers = caches;
    thread_cache_note_most(a);
    thread_cache_note_uncertainty(a);
}

/* Sets the gate. */
static void open_gate(struct thread_cache *cache, int wanted)
{
    cache->wanted = wanted;
    int gate = wanted || !cache->allocator ? GATE_SHUT
               : cache->is_special         ? GATE_SPECIAL
                                           : GATE_PLAIN;
    atomic_store_explicit(&cache->gate, gate, memory_order_release);
}

/* Ends the service for the allocator that the cache has served. `begun`: the numbers that are being
 * changed already. */
static void unbind(struct thread_cache *cache, const struct device_stats *begun)
{
    struct allocator *a = cache->allocator;
    if (!a)
        return;
    if (a->stats != begun)
        stats_begin(a->stats);
    empty(cache);
    cache->allocator = NULL;
    open_gate(cache, cache->wanted);
    stat_set(&cache->row->device, 0);
    note_sharers(a);
    if (!a->caches.sharers)
        empty_spare(a);
    if (a->stats != begun)
        stats_end(a->stats);
}

void thread_cache_settle_with(struct thread_cache *cache, struct allocator *a)
{
    if (cache->allocator == a) {
        thread_cache_fold(cache);
        return;
    }
    unbind(cache, a->stats);
    if (a->life.forgotten)
        return;
    cache->allocator = a;
    cache->number = a->number;
    open_gate(cache, cache->wanted);
    stat_set(&cache->row->device, a->ordinal + 1);
    note_sharers(a);
    thread_cache_forget_limits(cache);
}

/* Would `more` than there is now raise the peak of all blocks? */
static int passes_peak(const struct device_stats *stats, enum stat_kind kind, int64_t more)
{
    return (int64_t)(stats_current_all(stats, kind) + (uint64_t)more -
                     stat_get(&stats->stat[kind].peak[STAT_POOLS])) > 0;
}

/* What the thread has allocated alone and not freed. */
static int64_t alone(int64_t now, int64_t folded)
{
    return folded > now ? folded - now : 0;
}

int thread_cache_settle_touched(struct thread_cache *cache, struct allocator *a, uint64_t size,
                                uint64_t requested)
{
    const struct device_stats *stats = a->stats;
    int64_t bytes = (int64_t)size + alone(cache_bytes(cache), cache->folded_bytes);
    int64_t asked = (int64_t)requested + alone(cache_requested(cache), cache->folded_requested);
    int64_t blocks = 1 + alone(cache_count(cache), cache->folded_count);
    if (cache->allocator != a ||
        (cache->touched && (passes_peak(stats, STAT_active_bytes, bytes) ||
                            passes_peak(stats, STAT_allocated_bytes, bytes) ||
                            passes_peak(stats, STAT_requested_bytes, asked) ||
                            passes_peak(stats, STAT_active, blocks) ||
                            passes_peak(stats, STAT_allocation, blocks)))) {
        thread_cache_settle_own(cache, a);
        return 1;
    }
    thread_cache_note_passed(cache, size, requested);
    return 0;
}

struct block *thread_cache_find(struct allocator *a, uint64_t size)
{
    struct thread_cache *cache = thread_cache_of(a->domain);
    if (!cache || cache->allocator != a || !thread_cache_fill(cache, size))
        return NULL;
    struct shelf *shelf = shelf_of(cache, size);
    struct block *block = shelf->first;
    shelf->first = block->link;
    shelf->room++;
    thread_cache_moved(cache, size, -1);
    thread_cache_book_out(a, size);
    return block;
}

/* Puts a reusable block that is in no pool into the cache, which has room for it. */
static void shelve(struct thread_cache *cache, struct block *block)
{
    struct allocator *a = cache->allocator;
    uint64_t size = block_size(block);
    struct shelf *shelf = shelf_of(cache, size);
    block->state = BLOCK_ALLOCATED;
    block->site = 0;
    block_claim(block, CLAIM_CACHED);
    block->link = shelf->first;
    shelf->first = block;
    shelf->room--;
    thread_cache_moved(cache, size, 1);
    stats_add(a->stats, STAT_inactive_split, SMALL_POOL, 1);
    stats_add(a->stats, STAT_inactive_split_bytes, SMALL_POOL, size);
    stats_set(a->stats, COUNTER_reusable_bytes, stats_get(a->stats, COUNTER_reusable_bytes) + size);
}

/* Makes room for a block where the transfer cache is full. First blocks that no thread asks for go
 * to the pool, then some of this size, so that the next frees find room. Returns 0 if there is
 * none. */
static int make_room(struct thread_cache *cache, uint64_t size)
{
    struct shelf *shelf = shelf_of(cache, size);
    trim_spare(cache->allocator, cache);
    if (thread_cache_room(cache, size))
        return 1;
    if (!shelf->full || shelf->room)
        return 0;
    struct block *full = shelf->first;
    shelf->first = shelf->full;
    shelf->full = full;
    for (; shelf->room < policy.trim_blocks && shelf->first; shelf->room++) {
        struct block *block = shelf->first;
        shelf->first = block->link;
        pool_back(block);
    }
    thread_cache_moved(cache, size, -(int64_t)shelf->room);
    return thread_cache_room(cache, size);
}

int thread_cache_keep(struct block *block)
{
    struct allocator *a = block->segment->allocator;
    struct thread_cache *cache = thread_cache_of(a->domain);
    uint64_t size = block_size(block);
    if (!cache || cache->allocator != a || !block_is_cacheable(block) ||
        (!thread_cache_room(cache, size) && !make_room(cache, size)))
        return 0;
    block_leaves_use(block);
    shelve(cache, block);
    return 1;
}

void thread_cache_stock(struct allocator *a, uint64_t size)
{
    struct thread_cache *cache = thread_cache_of(a->domain);
    struct block *block;
    if (pool_for(a, size) != POOL_SMALL)
        return;
    if (!cache || cache->allocator != a || !caches_are_contended(a))
        return;
    for (uint64_t i = 1;
         i < batch_blocks(size) && i < policy.stock_blocks && thread_cache_room(cache, size) &&
         (block = pool_take_from(a, POOL_SMALL, size));
         i++) {
        if (block_size(block) != size || block_list(block)) {
            pool_merge(a, block);
            return;
        }
        shelve(cache, block);
    }
}

int thread_caches_serve(const struct domain *domain, const struct device_stats *stats)
{
    for (const struct thread_cache *cache = domain->caches; cache; cache = cache->next)
        if (serves(cache, stats))
            return 1;
    return 0;
}

uint64_t thread_caches_uses(const struct allocator *a)
{
    uint64_t uses = 0;
    for (const struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
        if (serves(cache, a->stats))
            uses += stat_get(&cache->row->sequence);
    return uses;
}

void thread_caches_stop(struct domain *domain, const struct device_stats *stats)
{
    int others = 0;
    for (struct thread_cache *cache = domain->caches; cache; cache = cache->next)
        if (serves(cache, stats) && cache != thread_cache_own) {
            open_gate(cache, 1);
            others = 1;
        }
    if (!others)
        return;
    domain->lane.ops->barrier();
    for (struct thread_cache *cache = domain->caches; cache; cache = cache->next)
        if (cache->wanted)
            for (int looks = 0; atomic_load_explicit(&cache->sequence, memory_order_acquire) % 2;
                 looks++)
                pause_look(looks);
}

void thread_caches_go_on(struct domain *domain, const struct device_stats *stats)
{
    for (struct thread_cache *cache = domain->caches; cache; cache = cache->next)
        if (!stats || serves(cache, stats))
            open_gate(cache, 0);
}

uint64_t thread_caches_pool(struct allocator *a)
{
    uint64_t bytes = 0;
    for (struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
        if (serves(cache, a->stats))
            bytes += empty(cache);
    for (struct allocator *other = a->domain->first; other; other = other->next)
        if (other->stats == a->stats)
            bytes += empty_spare(other);
    return bytes;
}

uint64_t thread_caches_empty(struct allocator *a)
{
    thread_caches_stop(a->domain, a->stats);
    uint64_t bytes = thread_caches_pool(a);
    thread_caches_go_on(a->domain, a->stats);
    return bytes;
}

void thread_caches_leave(struct allocator *a)
{
    for (struct thread_cache *cache = a->domain->caches; cache; cache = cache->next)
        if (cache->allocator == a) {
            unbind(cache, a->stats);
            open_gate(cache, 0);
        }
}

int domain_thread_is_inside(const struct domain *domain)
{
    const struct thread_cache *cache = thread_cache_of(domain);
    return cache && stat_get(&cache->sequence) % 2;
}

int domain_thread_begins(struct domain *domain, struct cache_row *row)
{
    const struct lane_ops *ops = domain->lane.ops;
    if (!domain->options.thread_cache || !domain->options.cache || !ops || ops->barrier())
        return -1;
    domain_lock(domain);
    struct events_row *noted = domain->events ? events_row_begin(domain->events) : NULL;
    struct thread_cache *cache = noted || !domain->events ? slab_take(&domain->cache_slab) : NULL;
    if (cache) {
        cache->domain = domain;
        cache->row = row;
        stat_set(&cache->sequence, 0);
        cache->noted = noted;
        cache->mark = noted ? (uint16_t)(noted - domain->events->row + 1) : 0;
        cache->thread = events_thread();
        cache->is_special = noted || domain->options.roundup_power2_divisions[0] > 1;
        thread_cache_forget_limits(cache);
        cache->next = domain->caches;
        if (cache->next)
            cache->next->previous = cache;
        domain->caches = cache;
        domain->threads++;
    } else if (noted) {
        events_row_end(domain->events, noted);
    }
    domain_unlock(domain);
    thread_cache_own = cache;
    return cache ? 0 : -1;
}

void domain_thread_ends(struct domain *domain)
{
    struct thread_cache *cache = thread_cache_of(domain);
    if (!cache)
        return;
    domain_lock(domain);
    thread_cache_own = NULL;
    unbind(cache, NULL);
    domain->threads--;
    if (cache->noted)
        events_row_end(domain->events, cache->noted);
    *(cache->previous ? &cache->previous->next : &domain->caches) = cache->next;
    if (cache->next)
        cache->next->previous = cache->previous;
    slab_give(&domain->cache_slab, cache);
    domain_unlock(domain);
}
