/* Blocks and the segments that they tile. Everything here is guarded by the domain's lock, but for
 * what own.c says. */
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
    struct treap_node node; /* in the domain's tree; minor: address */
    uint64_t size;
    struct allocator *allocator;
    struct block *first;
    struct arena *arena;                     /* NULL: the driver gave it as one piece */
    struct segment *previous, *next;         /* all of the allocator */
    struct segment *idle_older, *idle_newer; /* while it is one reusable block */
    uint64_t idle_since;                     /* order of becoming idle */
    enum pool pool;
    enum stat_pool stat; /* what its bytes are booked as */
    int idle;            /* in the idle list */
};

static inline struct block *block_of_node(struct treap_node *node)
{
    return (struct block *)((char *)node - offsetof(struct block, node));
}

static inline struct block *block_of_listed(struct map_node *node)
{
    return node ? (struct block *)((char *)node - offsetof(struct block, listed)) : NULL;
}

static inline uint64_t block_size(const struct block *block)
{
    return block->node.major;
}

static inline uint64_t block_address(const struct block *block)
{
    return block->node.minor;
}

/* As what it is booked while it is the program's, wherever it lies: PyTorch's small pool has blocks up
 * to a MiB. */
static inline enum stat_pool block_stat(const struct block *block)
{
    return block_size(block) <= MIB ? SMALL_POOL : LARGE_POOL;
}

/* The size of a block that was handed out and is not too large for a thread cache. */
static inline uint64_t block_small_size(const struct block *block)
{
    return (uint64_t)block->grains * BLOCK_GRAIN;
}

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
