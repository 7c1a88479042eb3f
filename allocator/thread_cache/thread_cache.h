/* Thread caches: a thread allocates and frees small blocks alone, without the lock. The rules are
 * at the head of own.c.
 *
 * A cache holds small reusable blocks of one allocator at a time, apart from the pool. It holds at
 * most cache_limit bytes and `policy.cache_blocks` blocks. A full cache spills into the transfer
 * cache (transfer.h), from which the cache of any thread is filled again. Both go back to the pool
 * when memory is short. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_THREAD_CACHE_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_THREAD_CACHE_H

#include "allocator/state/enter.h"
#include "allocator/thread_cache/transfer.h"
#include "stats/counters/cache_row.h"
#include "stats/events/events.h"

#define TAKEN 512     /* more than what is mostly under way from one thread to another */
#define TAKEN_AHEAD 4 /* so many frees take as long as a line from another processor */

/* SHUT: the cache is wanted, or serves no allocator. SPECIAL: the cache is special. */
enum { GATE_SHUT, GATE_PLAIN, GATE_SPECIAL };

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): what others look at lies apart */
struct thread_cache {
    _Alignas(128) struct domain *domain; /* shares no cache line, nor a pair of them */
    struct cache_row *row;
    struct events_row *noted;    /* events that it notes alone; NULL: none */
    uint64_t thread, last_freed; /* its name in events; address that last_freed.c handed out last */
    uint16_t mark, number;       /* its mark in blocks, not 0; its allocator's number */
    int is_special;              /* it notes events, or sizes are in steps */
    int wanted;                  /* another thread needs its blocks */
    struct allocator *allocator; /* whose blocks it holds; NULL: none */
    stat_value sequence;         /* odd while its thread is in it */
    _Atomic int gate;            /* which way its thread may enter (thread_cache_open) */
    uint32_t touched, takes;     /* bins of the row that are not 0; place of the next allocation */
    /* take_…, give_…: what the thread may still take and give before a peak is passed or the cache is
     * too full. The balance is what it freed less what it allocated since the cache was empty.
     * least_…: the balance at which nothing more may be taken; least_… plus take_… is the balance
     * now (cache_bytes). folded_…: the balance at the last fold. */
    int64_t take_bytes, give_bytes, take_count, give_count, take_requested;
    int64_t least_bytes, least_count, least_requested;
    int64_t folded_bytes, folded_count, folded_requested;
    int64_t own_bytes, own_count, own_requested; /* least_… for the peaks of small blocks alone */
    int64_t all_bytes, all_count, all_requested; /* and for those of all blocks */
    int64_t peak_bytes, peak_count;              /* what may be given if it were never too full */
    struct block *next_taken; /* follows the block freed last in the ring that has both */
    struct block *expected;   /* the same, if the block freed last had been expected there too */
    struct block *found;      /* by the last free without the lock, which could not take it */
    struct thread_cache *next, *previous;
    int64_t spared;                          /* given less taken of the transfer cache, not told */
    unsigned hand;                           /* which size spills next, when the cache is full */
    _Atomic uint64_t used[CACHE_STEPS / 64]; /* bit: a shelf that has room or blocks */
    struct shelf shelf[CACHE_STEPS];
    /* The ring of the thread's last allocations. The entry TAKEN_AHEAD behind the last one is NULL,
     * and so are those at the end. The ring is kept when the thread has ended, since others may
     * read it. */
    _Alignas(128) struct block *_Atomic taken[TAKEN + TAKEN_AHEAD];
};

/* The place of blocks that are in no ring. */
extern struct block *_Atomic thread_cache_nowhere[TAKEN_AHEAD + 1];

/* Returns shelf[step_of(size)]. Sizes are whole grains, which the compiler cannot know. */
static inline struct shelf *shelf_of(struct thread_cache *cache, uint64_t size)
{
    return (struct shelf *)((char *)cache->shelf + size / (BLOCK_GRAIN / sizeof(struct shelf))) - 1;
}

/* Returns the calling thread's cache in this domain, or NULL. */
static inline struct thread_cache *thread_cache_of(const struct domain *domain)
{
    struct thread_cache *cache = thread_cache_own;
    return cache && cache->domain == domain ? cache : NULL;
}

#endif
