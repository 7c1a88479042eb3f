/* The layout of a block. There are as many as the program has live blocks, so bytes count. */
#ifndef CACHALOT_ALLOCATOR_STATE_BLOCK_LAYOUT_H
#define CACHALOT_ALLOCATOR_STATE_BLOCK_LAYOUT_H

#include <stddef.h>

#include "allocator/base/options.h"
#include "allocator/base/page_map.h"
#include "allocator/base/treap.h"

/* CLAIMED: out of its pool for a moment; nothing merges with it. ABSENT: addresses of an arena
 * without memory. ELSEWHERE: addresses of a divided chunk whose bytes belong to another slot
 * (divide.h). */
enum block_state {
    BLOCK_ALLOCATED,
    BLOCK_PENDING,
    BLOCK_REUSABLE,
    BLOCK_CLAIMED,
    BLOCK_ABSENT,
    BLOCK_ELSEWHERE
};

/* DEDICATED: whole segments, never split, for memory that other processes may map (at offset 0).
 * PINNED: memory on which the program has set SYNC_MEMOPS; no request is ever served from it. */
enum pool { POOL_SMALL, POOL_LARGE, POOL_MAPPED, POOL_DEDICATED, POOL_PINNED, POOLS };

/* A thread without the lock touches only the last 32 bytes. Of blocks that lie side by side, each
 * has them in a cache line of its own. */
struct block {
    _Alignas(32) struct segment *segment;
    struct block *previous, *next; /* neighbours in the segment, by address */
    uint32_t requested_high;
    uint32_t name;       /* identifies the block in share.h; 0: not asked for yet */
    uint16_t site;       /* mark of the request (stats/events/sites.h); 0 in a thread cache */
    uint16_t noted_by;   /* mark of the thread that recorded the request alone (thread_cache.h) */
    uint8_t state;       /* enum block_state */
    uint8_t shared;      /* other processes may use it: only a fence makes it reusable */
    uint8_t pinned;      /* in POOL_PINNED when reusable, whatever the segment's pool */
    uint8_t sync_memops; /* 1: set; 2: was set since the block was handed out */
    union {
        struct treap_node node; /* major: bytes, minor: address; in its pool while reusable */
        struct {
            char apart[offsetof(struct treap_node, right)];
            union {
                struct block *link; /* next block of the same fence, or of the same thread cache */
                struct block *_Atomic *noted; /* the program's: its entry in a thread's log */
            };
        };
    };
    uint32_t requested; /* lower half; all of it where a thread cache may hold the block */
    uint16_t grains;    /* its size in grains, where a thread cache may hold it */
    uint16_t owner;     /* the allocator's number; grains and owner are set when handed out */

    /* Keeps its contents when the block goes back to the slab: a thread without the lock may read
     * it. */
    union {
        _Atomic uint64_t claim;  /* address and kind (block_claim.h); 0: not in the map */
        struct page_node listed; /* in the domain's map since it was first handed out; key: claim */
    };
};
_Static_assert(offsetof(struct block, link) == 64 && sizeof(struct block) == 96, "lines");

#endif
