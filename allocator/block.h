/* Blocks and the segments that they tile. Everything here is guarded by the domain's lock, but for
 * what thread_cache.c says. */
#ifndef CACHALOT_ALLOCATOR_BLOCK_H
#define CACHALOT_ALLOCATOR_BLOCK_H

#include <stddef.h>

#include "allocator/allocator.h"
#include "allocator/map.h"
#include "allocator/tree.h"

/* ABSENT: addresses of an arena without memory; CLAIMED: taken out of its pool, for now. */
enum block_state { BLOCK_ALLOCATED, BLOCK_PENDING, BLOCK_REUSABLE, BLOCK_ABSENT, BLOCK_CLAIMED };

/* DEDICATED: whole segments for memory that other processes may map (offset 0, never split).
 * PINNED: memory that keeps a setting of the program's (SYNC_MEMOPS): nothing is ever taken from
 * it. */
enum pool { POOL_SMALL, POOL_LARGE, POOL_MAPPED, POOL_DEDICATED, POOL_PINNED, POOLS };

#define BLOCK_GRAIN 512 /* kMinBlockSize: blocks begin at multiples of it in their segment */

/* Of two lines; what a thread touches without the lock lies in the second one. */
struct block {
    _Alignas(128) struct segment *segment;
    struct block *previous, *next; /* neighbours in the segment, by address */
    uint64_t name;                 /* in answers of ours to whoever asked; 0: nobody has */
    int pinned;    /* in POOL_PINNED when reusable, whatever the segment's other blocks do */
    uint32_t site; /* where it was asked for (stats/sites.h); only while that is recorded */
    struct tree_node node; /* in its pool while reusable; major: size, minor: address */

    struct allocator *allocator; /* its segment's */
    struct block *link;          /* next block of the same fence, or in the same thread cache */
    uint64_t requested;
    enum block_state state;
    uint16_t shared;   /* other processes may use it: only a fence makes it reusable */
    uint16_t noted_by; /* the thread that noted alone that it was handed out (thread_cache.h) */

    /* Kept when the block is given back (slab.h): a thread without the lock may look. */
    _Atomic uint64_t claim; /* its address and whose it is; 0: not in the map */
    struct map_node listed; /* in the domain's map since it was first handed out; key: address */
};
_Static_assert(offsetof(struct block, node.major) == 64 && sizeof(struct block) == 128, "lines");

/* Blocks that become reusable together, joined by `link`. */
struct block_list {
    struct block *first, *last;
};

struct segment {
    struct tree_node node; /* in the domain's tree; minor: address */
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

static inline struct block *block_of_node(struct tree_node *node)
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

/* Do its neighbours lie beside it, and is it merged with them where it could be? */
int block_is_valid(const struct block *block);

#endif
