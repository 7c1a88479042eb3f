/* Spare blocks of an allocator: what spills out of full thread caches, and fills empty ones, a
 * batch at a time. A batch is a chain (`link`) of blocks of one size that moves as a whole: its
 * first block says how many they are (`requested`) and which is the next batch (`node.left`: it is
 * in no tree).
 *
 * Whoever gives or takes is in its cache or holds the allocator's lock. Each size has a list of its
 * own, which one thread at a time holds; it is waited for only shortly, then there is nothing. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_TRANSFER_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_TRANSFER_H

#include "allocator/state/allocator_state.h"

#define BATCH_BLOCKS 16
#define BATCH_LEAST 2

/* What a cache has of one size: two chains, so that one can come or go while the other stays. */
struct shelf {
    _Alignas(32) struct block *first; /* 32 bytes each: found by a shift */
    struct block *full;               /* a batch, or nothing */
    uint64_t room;                    /* blocks that `first` still takes; 0 at the very first */
};

/* The larger, the fewer; but halved, they become fewer by two or so only. */
static inline uint64_t batch_blocks(uint64_t size)
{
    static const unsigned char blocks[] = {BATCH_BLOCKS, 12, 9, 6, 4, 3, BATCH_LEAST};
    uint64_t grains = (size - 1) / (16 * 1024);
    return blocks[grains ? 64 - __builtin_clzll(grains) : 0];
}

static inline unsigned step_of(uint64_t size)
{
    return (unsigned)(size / BLOCK_GRAIN - 1);
}

static inline uint64_t step_size(unsigned step)
{
    return (step + 1) * (uint64_t)BLOCK_GRAIN;
}

/* Bitmaps of steps, which one thread at a time changes or which are changed atomically. before: the
 * last one below `step`, or -1. */
int step_before(const _Atomic uint64_t *used, unsigned step);
static inline int step_is_used(const _Atomic uint64_t *used, unsigned step)
{
    return atomic_load_explicit(&used[step / 64], memory_order_relaxed) >> step % 64 & 1;
}

/* 0; or -1: there is too much already (put: that does not matter), or the list is busy. `alone`: the
 * count of the cache that it is for; NULL: none. */
int transfer_give(struct allocator *allocator, int64_t *alone, struct block *first, uint64_t count);
int transfer_put(struct allocator *allocator, int64_t *alone, struct block *first, uint64_t count);

/* A batch, or NULL. */
struct block *transfer_take(struct allocator *allocator, int64_t *alone, uint64_t size);

/* Has anybody taken one since this was asked last? Here alone the list's bit goes, if it is empty.
 */
int transfer_is_asked(struct allocator *allocator, unsigned step);

static inline int transfer_any(const struct allocator *allocator, uint64_t size)
{
    const struct transfer_list *list = &allocator->shared.transfer[step_of(size)];
    return atomic_load_explicit(&list->count, memory_order_relaxed) != 0;
}

/* Do several threads share the allocator? */
static inline int caches_are_shared(const struct allocator *allocator)
{
    return allocator->caches.sharers > 1;
}

/* And are they in each other's way? Else what is fetched in advance costs more than it saves. */
static inline int caches_are_contended(const struct allocator *allocator)
{
    return caches_are_shared(allocator) && allocator->caches.contended;
}

static inline struct block *transfer_next(const struct block *batch)
{
    return batch->node.left ? block_of_node(batch->node.left) : NULL;
}

#endif
