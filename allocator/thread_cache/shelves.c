/* Shelves: the blocks of each size in a thread cache, filled from the transfer cache and spilled
 * into it. */
#include "allocator/thread_cache/shelves.h"

#include "allocator/base/policy.h"
#include "allocator/thread_cache/limits.h"

static struct shelf *use(struct thread_cache *cache, uint64_t size)
{
    unsigned step = step_of(size);
    uint64_t bits = atomic_load_explicit(&cache->used[step / 64], memory_order_relaxed);
    atomic_store_explicit(&cache->used[step / 64], bits | (uint64_t)1 << step % 64,
                          memory_order_relaxed);
    return &cache->shelf[step];
}

/* Spills a batch of one size, the next one below the hand, into the transfer cache. Returns 0 if
 * that has no room. A shelf that has more blocks keeps the others. */
static int spill(struct thread_cache *cache)
{
    int step = step_before(cache->used, cache->hand);
    if (step < 0 && (step = step_before(cache->used, CACHE_STEPS)) < 0)
        return 0;
    struct shelf *shelf = &cache->shelf[step];
    uint64_t size = step_size((unsigned)step), most = batch_blocks(size);
    cache->hand = (unsigned)step;
    struct block *batch = shelf->full ? shelf->full : shelf->first;
    uint64_t blocks = shelf->full ? most : most - shelf->room;
    if (batch) {
        if (transfer_give(cache->allocator, &cache->spared, batch, blocks))
            return 0;
        thread_cache_moved(cache, size, -(int64_t)blocks);
    }
    if (shelf->full) {
        shelf->full = NULL;
        return 1;
    }
    *shelf = (struct shelf){0};
    uint64_t bits = atomic_load_explicit(&cache->used[step / 64], memory_order_relaxed);
    atomic_store_explicit(&cache->used[step / 64], bits & ~((uint64_t)1 << step % 64),
                          memory_order_relaxed);
    return 1;
}

/* Makes room in the cache for so many blocks more. Returns 0 if that takes too many spills: one
 * request does little of it. */
static int has_room(struct thread_cache *cache, uint64_t size, uint64_t blocks)
{
    for (int i = 0; cache_bytes(cache) + (int64_t)(size * blocks) > cache_limit(cache) ||
                    cache_count(cache) + (int64_t)blocks > policy.cache_blocks;
         i++)
        if (i == policy.spills || !spill(cache))
            return 0;
    return 1;
}

__attribute__((noinline)) int thread_cache_fill(struct thread_cache *cache, uint64_t size)
{
    struct allocator *a = cache->allocator;
    struct shelf *shelf = shelf_of(cache, size);
    uint64_t most = batch_blocks(size);
    if (shelf->first)
        return 1;
    if (shelf->full) {
        *shelf = (struct shelf){.first = shelf->full};
        return 1;
    }
    if (!transfer_any(a, size) || !has_room(cache, size, most) ||
        !(shelf->first = transfer_take(a, &cache->spared, size)))
        return 0;
    uint64_t blocks = shelf->first->requested;
    shelf->room = most - blocks;
    use(cache, size);
    thread_cache_moved(cache, size, (int64_t)blocks);
    return 1;
}

int thread_cache_room(struct thread_cache *cache, uint64_t size)
{
    struct shelf *shelf = use(cache, size);
    uint64_t most = batch_blocks(size);
    if (!has_room(cache, size, 1))
        return 0;
    if (shelf->room)
        return 1;
    if (shelf->first && shelf->full) {
        if (transfer_give(cache->allocator, &cache->spared, shelf->full, most))
            return 0;
        thread_cache_moved(cache, size, -(int64_t)most);
    }
    use(cache, size); /* the shelf itself may have spilled */
    *shelf = (struct shelf){.full = shelf->first, .room = most};
    return 1;
}
