/* Thread caches: what a thread allocates and frees again alone costs no lock. The rules are at the
 * head of own.c.
 *
 * A cache holds small blocks that are reusable, apart from the pool, of one allocator at a time, at
 * most cache_limit and policy.cache_blocks. What spills over goes to the allocator's spare blocks
 * (transfer.h), from where any thread's cache is filled again; both go back to the pool when memory is
 * short. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_THREAD_CACHE_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_THREAD_CACHE_H

#include "allocator/state/enter.h"
#include "allocator/thread_cache/transfer.h"
#include "stats/counters/cache_row.h"
#include "stats/events/events.h"

#define TAKEN 512     /* more than what is mostly under way from one thread to another */
#define TAKEN_AHEAD 4 /* so many frees take as long as a line from another processor */

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): what others look at lies apart */
struct thread_cache {
    _Alignas(128) struct domain *domain; /* no line is another's, nor its neighbour */
    struct cache_row *row;
    struct events_row *noted;    /* what it does alone; NULL: nobody wants to know */
    uint64_t thread, last_freed; /* in events; what last_freed.c handed out last, address */
    uint16_t mark, number;       /* of blocks, not 0; of the allocator */
    struct sites *sites;         /* where it is asked; NULL: nobody wants to know */
    int recorded, plain;         /* either of them; a request is not, nor rounded in steps */
    struct allocator *allocator; /* whose blocks; NULL: none */
    _Atomic int wanted;          /* somebody else is in here */
    uint32_t touched, takes;     /* bins of the row that are not 0; what is noted next */
    /* Freed less allocated since the cache was empty; and when it was last folded. Between the
     * limits no peak is passed, and the cache is not too full. */
    int64_t bytes, count, requested;
    int64_t least_bytes, most_bytes, least_count, most_count, least_requested;
    int64_t folded_bytes, folded_count, folded_requested;
    int64_t own_bytes, own_count, own_requested; /* least_… for the peaks of small blocks alone */
    int64_t all_bytes, all_count, all_requested; /* and of all sizes */
    int64_t peak_bytes, peak_count;              /* most_…, were the cache never too full */
    struct block *next_taken; /* after the block freed last, by the other thread that took both */
    struct block *expected;   /* the same, if the one before was foreseen, too */
    struct block *found;      /* by the last free without the lock, which did not take it */
    struct thread_cache *next, *previous;
    int64_t spared;                          /* given less taken of spare blocks, not told yet */
    unsigned hand;                           /* which size spills next, when all is too much */
    _Atomic uint64_t used[CACHE_STEPS / 64]; /* bit: a shelf that has room or blocks */
    struct shelf shelf[CACHE_STEPS];
    /* What the thread took lately, in turn; the TAKEN_AHEAD-th after the last one is NULL, as is
     * what lies at the end. Kept when the thread has ended, since others may look. */
    _Alignas(128) struct block *_Atomic taken[TAKEN + TAKEN_AHEAD];
};

/* For blocks that no thread has noted. */
extern struct block *_Atomic thread_cache_nowhere[TAKEN_AHEAD + 1];

/* shelf[step_of(size)], for sizes of whole grains, which the compiler cannot know. */
static inline struct shelf *shelf_of(struct thread_cache *cache, uint64_t size)
{
    return (struct shelf *)((char *)cache->shelf + size / (BLOCK_GRAIN / sizeof(struct shelf))) - 1;
}

/* The calling thread's cache of this domain, or NULL. */
static inline struct thread_cache *thread_cache_of(const struct domain *domain)
{
    struct thread_cache *cache = thread_cache_own;
    return cache && cache->domain == domain ? cache : NULL;
}

#endif
