/* A block as it lies in memory: there are as many as the program has live ones, so bytes count. */
#ifndef CACHALOT_ALLOCATOR_STATE_BLOCK_LAYOUT_H
#define CACHALOT_ALLOCATOR_STATE_BLOCK_LAYOUT_H

#include <stddef.h>

#include "allocator/base/map.h"
#include "allocator/base/options.h"
#include "allocator/base/treap.h"

/* CLAIMED: taken out of its pool, for now. Addresses of an arena without memory are ABSENT, or, if what is mapped
 * there is another slot's in part (divide.h), ELSEWHERE. */
enum block_state {
    BLOCK_ALLOCATED,
    BLOCK_PENDING,
    BLOCK_REUSABLE,
    BLOCK_CLAIMED,
    BLOCK_ABSENT,
    BLOCK_ELSEWHERE
};

/* DEDICATED: whole segments for memory that other processes may map (offset 0, never split).
 * PINNED: memory that keeps a setting of the program's (SYNC_MEMOPS): nothing is ever taken from
 * it. */
enum pool { POOL_SMALL, POOL_LARGE, POOL_MAPPED, POOL_DEDICATED, POOL_PINNED, POOLS };

/* What a thread touches without the lock are the last 32 bytes: of blocks side by side each has
 * them in a line of its own. */
struct block {
    _Alignas(32) struct segment *segment;
    struct block *previous, *next; /* neighbours in the segment, by address */
    uint32_t requested_high;
    uint32_t name; /* in answers of ours to whoever asked; 0: nobody has */
    uint16_t site; /* where it was asked for (stats/events/sites.h); only while that is recorded */
    uint16_t noted_by;   /* the thread that noted alone that it was handed out (thread_cache.h) */
    uint8_t state;       /* enum block_state */
    uint8_t shared;      /* other processes may use it: only a fence makes it reusable */
    uint8_t pinned;      /* in POOL_PINNED when reusable, whatever the segment's other blocks do */
    uint8_t sync_memops; /* 1: is set; 2: was, since it was handed out */
    union {
        struct treap_node node; /* in its pool while reusable; major: size, minor: address */
        struct {
            char apart[offsetof(struct treap_node, right)];
            union {
                struct block *link; /* next block of the same fence, or in the same thread cache */
                struct block *_Atomic *noted; /* the program's: where its thread noted it */
            };
        };
    };
    uint32_t requested; /* the lower half; all of it where a thread cache may have the block */
    uint16_t grains;    /* its size, likewise */
    uint16_t owner;     /* the allocator's number; these two since it was handed out */

    /* Kept when the block is given back (slab.h): a thread without the lock may look. */
    union {
        _Atomic uint64_t claim; /* its address and whose it is; 0: not in the map */
        struct map_node listed; /* in the domain's map since it was first handed out; key: claim */
    };
};
_Static_assert(offsetof(struct block, link) == 64 && sizeof(struct block) == 96, "lines");

#endif
