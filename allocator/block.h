/* The allocator's structs, for its own files. Everything here is guarded by the domain's lock. */
#ifndef CACHALOT_ALLOCATOR_BLOCK_H
#define CACHALOT_ALLOCATOR_BLOCK_H

#include <pthread.h>

#include "allocator/allocator.h"
#include "allocator/map.h"
#include "allocator/slab.h"
#include "allocator/tree.h"

enum block_state { BLOCK_ALLOCATED, BLOCK_PENDING, BLOCK_REUSABLE };

/* DEDICATED: whole segments for memory that other processes may map (offset 0, never split).
 * PINNED: memory that keeps a setting of the program's (SYNC_MEMOPS): nothing is ever taken from
 * it. */
enum pool { POOL_SMALL, POOL_LARGE, POOL_DEDICATED, POOL_PINNED, POOLS };

struct block {
    struct tree_node node; /* in its pool while reusable; major: size, minor: address */
    struct map_node live;  /* in the domain's map while allocated; key: address */
    struct segment *segment;
    struct block *previous, *next; /* neighbours in the segment, by address */
    struct block *link;            /* next block of the same fence */
    uint64_t requested;
    enum block_state state;
};

struct segment {
    struct tree_node node; /* in the domain's tree; minor: address */
    uint64_t size;
    struct allocator *allocator;
    struct block *first;
    struct segment *previous, *next;         /* all of the allocator */
    struct segment *idle_older, *idle_newer; /* while it is one reusable block */
    uint64_t idle_since;                     /* in mallocs of the allocator */
    enum pool pool;
    enum stat_pool stat; /* what its bytes are booked as */
    int idle;            /* in the idle list */
};

enum fence_state { FENCE_RECORDING, FENCE_PENDING, FENCE_GONE };

struct fence {
    void *event;
    uint64_t owner;  /* thread that freed, and may wait for it without limit */
    uint64_t number; /* order of becoming pending */
    uint64_t recorded_ns;
    uint64_t covers; /* fences numbered up to this one were recorded before this one began */
    struct block *blocks;
    struct fence *next, *previous;
    unsigned users; /* threads asking about the event now: it must not be marked anew */
    enum fence_state state;
    int late; /* recorded after its frees: only query, or wait with a limit */
};

struct allocator {
    struct domain *domain;
    const struct device_ops *ops;
    void *device;
    unsigned ordinal;
    struct device_stats *stats;
    uint64_t limit;
    struct tree pool[POOLS];
    struct segment *segments;
    struct segment *idle_oldest, *idle_newest;
    struct fence *pending, *pending_last; /* by number */
    struct fence *recording;
    struct fence *spare;    /* with events to use again */
    struct block *deferred; /* freed during a capture: no fence yet */
    struct block *lost;     /* freed while the context was failing: never reusable */
    uint64_t fence_number, growing_bytes, mallocs, poll_after;
    int no_events; /* the driver cannot mark a context: free as in strict mode */
    int error;     /* the context's own error: everything goes to the driver */
    int forgotten;
    struct allocator *next;
};

struct domain {
    pthread_mutex_t lock;
    struct options options;
    struct map live;
    struct tree segments;
    struct slab blocks, segment_slab, fences, allocators;
    struct allocator *first;
    int dedicated; /* blocks >= 2 MiB get segments of their own */
};

static inline struct block *block_of_node(struct tree_node *node)
{
    return (struct block *)node; /* the node is first */
}

static inline uint64_t block_size(const struct block *block)
{
    return block->node.major;
}

static inline uint64_t block_address(const struct block *block)
{
    return block->node.minor;
}

/* Locks and unlocks for a change of this allocator's numbers; in debug builds checks it when
 * leaving. */
void allocator_enter(struct allocator *allocator);
void allocator_leave(struct allocator *allocator);

/* pool.c */
enum pool pool_for(const struct allocator *allocator, uint64_t size);
struct block *pool_take(struct allocator *allocator, uint64_t size);
void pool_split(struct allocator *allocator, struct block *block, uint64_t size);
void pool_insert(struct allocator *allocator, struct block *block);
void pool_remove(struct allocator *allocator, struct block *block);
void block_becomes_reusable(struct block *block);

/* segment.c */
enum growth { GROW_SEGMENT, GROW_LEAST, GROW_NATIVE };
int segment_grow(struct allocator *allocator, uint64_t size, enum growth growth,
                 struct block **block);
int segment_release(struct segment *segment);
void segment_forget(struct segment *segment);
void segment_pin(struct segment *segment);
struct segment *segment_holding(const struct domain *domain, uint64_t address);
uint64_t segment_release_idle(struct allocator *allocator, uint64_t bytes);
void segment_collect_garbage(struct allocator *allocator, uint64_t size);
void segment_becomes_idle(struct segment *segment);
void segment_leaves_idle(struct segment *segment);

/* fence.c */
int fence_free(struct allocator *allocator, struct block *block);
void fence_poll(struct allocator *allocator, int needed);
struct block *fence_wait_for(struct allocator *allocator, uint64_t size, uint64_t budget_ns);
int fence_is_idle(struct allocator *allocator);
void fence_flush_deferred(struct allocator *allocator);
void fence_forget_all(struct allocator *allocator);

/* valid.c */
int block_is_valid(const struct block *block);
int allocator_is_valid(const struct allocator *allocator);

#endif
