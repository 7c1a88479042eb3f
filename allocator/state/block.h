/* Blocks and the segments that they tile. The domain's lock guards everything here, except for what
 * the head of thread_cache/own.c allows threads without it. */
#ifndef CACHALOT_ALLOCATOR_STATE_BLOCK_H
#define CACHALOT_ALLOCATOR_STATE_BLOCK_H

#include "allocator/base/condition.h"
#include "stats/counters/stats.h"
#include "allocator/state/block_layout.h"

/* Blocks that become reusable together, joined by `link`. */
struct block_list {
    struct block *first, *last;
};

struct segment {
    struct treap_node node; /* in the domain's treap; minor: address */
    uint64_t size;
    struct allocator *allocator;
    struct block *first;
    struct arena *arena;             /* NULL: an ordinary segment, one allocation of the driver */
    struct segment *previous, *next; /* the allocator's segments */
    struct segment *idle_older, *idle_newer; /* neighbours in the idle list */
    uint64_t idle_since;                     /* its number in the order of becoming idle */
    enum pool pool;
    enum stat_pool stat; /* the statistics pool that counts its bytes */
    int idle;            /* it is one reusable block, and in the idle list */
};

static inline struct block *block_of_node(struct treap_node *node)
{
    return (struct block *)((char *)node - offsetof(struct block, node));
}

static inline struct block *block_of_listed(struct page_node *node)
{
    return node ? (struct block *)((char *)node - offsetof(struct block, listed)) : NULL;
}

/* The bytes of a block. */
static inline uint64_t block_size(const struct block *block)
{
    return block->node.major;
}

static inline uint64_t block_address(const struct block *block)
{
    return block->node.minor;
}

/* The statistics pool that counts the block while the program holds it, wherever it lies. As in
 * PyTorch, the small pool has blocks up to 1 MiB. */
static inline enum stat_pool block_stat(const struct block *block)
{
    return block_size(block) <= MIB ? SMALL_POOL : LARGE_POOL;
}

/* The bytes of a block that was handed out and is small enough for a thread cache. It reads no
 * other cache line than a thread without the lock does. */
static inline uint64_t block_small_size(const struct block *block)
{
    return (uint64_t)block->grains * BLOCK_GRAIN;
}

/* The bytes that the program asked for. block_request sets them. */
static inline uint64_t block_requested(const struct block *block)
{
    return (uint64_t)block->requested_high << 32 | block->requested;
}

static inline void block_request(struct block *block, uint64_t bytes)
{
    block->requested = (uint32_t)bytes;
    block->requested_high = (uint32_t)(bytes >> 32);
}

#endif
