/* Thread caches: what a thread allocates and frees again alone costs no lock. The rules are at the
 * head of thread_cache.c.
 *
 * A cache holds small blocks that are reusable, apart from the pool, of one allocator at a time, at
 * most cache_limit and CACHE_BLOCKS. What spills over goes to the allocator's spare blocks
 * (spare.h), from where any thread's cache is filled again; both go back to the pool when memory is
 * short. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_H

#include "allocator/domain.h"
#include "allocator/spare.h"
#include "stats/cache_row.h"
#include "stats/events_alone.h"

#define CACHE_LIMIT (10 * MIB)
#define CACHE_LEAST (2 * MIB)
#define CACHE_PART 16 /* of the most that the program held in small blocks, and more (pace) */
#define CACHE_BLOCKS 256
#define ALONE_LIMIT (8 * MIB) /* that a thread counts alone: taken less freed, either way */

struct thread_cache {
    _Alignas(128) struct domain *domain; /* no line is another's, nor its neighbour */
    struct cache_row *row;
    struct events_row *noted;    /* what it does alone; NULL: nobody wants to know */
    uint64_t thread, kept;       /* in events; what kept.c handed out last, address */
    uint16_t mark, number;       /* of blocks, not 0; of the allocator */
    struct sites *sites;         /* where it is asked; NULL: nobody wants to know */
    int recorded, special;       /* either of them; a request is, or is rounded in steps */
    struct allocator *allocator; /* whose blocks; NULL: none */
    _Atomic int wanted;          /* somebody else is in here */
    uint32_t touched;            /* bins of the row that are not 0 */
    /* Freed less allocated since the cache was empty. Between the limits no peak is passed, and the
     * cache is not too full. */
    int64_t bytes, count, requested;
    int64_t least_bytes, most_bytes, least_count, most_count, least_requested;
    int64_t peak_bytes, peak_count; /* most_…, were the cache never too full */
    struct block *found;            /* by the last free without the lock, which did not take it */
    struct thread_cache *next, *previous;
    int64_t spared;                          /* given less taken of spare blocks, not told yet */
    unsigned hand;                           /* which size spills next, when all is too much */
    _Atomic uint64_t used[CACHE_STEPS / 64]; /* bit: a shelf that has room or blocks */
    struct shelf shelf[CACHE_STEPS];
};

/* shelf[step_of(size)], for sizes of whole grains, which the compiler cannot know. */
static inline struct shelf *shelf_of(struct thread_cache *cache, uint64_t size)
{
    return (struct shelf *)((char *)cache->shelf + size / (BLOCK_GRAIN / sizeof(struct shelf))) - 1;
}

/* By the cache's own thread, which is in it or holds the lock. Is there a block of `size`, from the
 * spare ones if need be? Is there room for one, when others have become spare? */
int thread_cache_fill(struct thread_cache *cache, uint64_t size);
int thread_cache_room(struct thread_cache *cache, uint64_t size);

/* So that the limits are looked up at the next request: until then nothing may be taken or given.
 */
static inline void thread_cache_forget_limits(struct thread_cache *cache)
{
    cache->least_bytes = INT64_MAX / 2; /* also when it moves a little */
    cache->peak_bytes = INT64_MIN / 2;
    cache->most_bytes = -1;
}

static inline int thread_cache_knows_limits(const struct thread_cache *cache)
{
    return cache->most_bytes >= 0;
}

/* Blocks came in or went out uncounted: what is known of the limits is as far away as before. */
void thread_cache_moved(struct thread_cache *cache, uint64_t size, int64_t blocks);

static inline int64_t cache_limit(const struct thread_cache *cache)
{
    return atomic_load_explicit(&cache->allocator->cache_most, memory_order_relaxed);
}

/* The calling thread's, of one domain; NULL: it has none. */
extern _Thread_local struct thread_cache *thread_cache_own;

/* The calling thread's cache of this domain, or NULL. */
static inline struct thread_cache *thread_cache_of(const struct domain *domain)
{
    struct thread_cache *cache = thread_cache_own;
    return cache && cache->domain == domain ? cache : NULL;
}

#endif
