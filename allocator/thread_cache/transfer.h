/* The transfer cache of an allocator: blocks that spill out of full thread caches and fill empty
 * ones, a batch at a time.
 *
 * A batch is a chain (`link`) of blocks of one size that moves as a whole. Its first block has
 * their number (`requested`) and leads to the next batch (`node.left`: the block is in no
 * treap).
 *
 * A thread that gives or takes is in its cache, or holds the domain's lock. Each size has a list of
 * its own, which one thread at a time holds. Other threads wait for it only shortly, and then go on
 * without it. */
#ifndef CACHALOT_ALLOCATOR_THREAD_CACHE_TRANSFER_H
#define CACHALOT_ALLOCATOR_THREAD_CACHE_TRANSFER_H

#include "allocator/state/allocator_state.h"

#define BATCH_BLOCKS 16
#define BATCH_LEAST 2

/* What a cache has of one size: two chains, so that one can come or go while the other stays. */
struct shelf {
    _Alignas(32) struct block *first; /* 32 bytes each: found by a shift */
    struct block *full;               /* a full batch, or NULL */
    uint64_t room;                    /* blocks that `first` still takes; 0 at the very first */
};

/* Returns the number of blocks of `size` bytes in a batch. Larger blocks come in smaller batches,
 * but the number falls more slowly than the size rises. */
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

/* Bitmaps of steps. One thread at a time changes them, or they are changed atomically. step_before
 * returns the last set step below `step`, or -1. */
int step_before(const _Atomic uint64_t *used, unsigned step);
static inline int step_is_used(const _Atomic uint64_t *used, unsigned step)
{
    return atomic_load_explicit(&used[step / 64], memory_order_relaxed) >> step % 64 & 1;
}

/* Gives a batch of `count` blocks. Returns 0, or -1: the list is busy, or (give, not put) the
 * transfer cache is full. `alone`: the count of the cache that gives (`spared`); put takes NULL
 * too, without a cache. */
int transfer_give(struct allocator *allocator, int64_t *alone, struct block *first, uint64_t count);
int transfer_put(struct allocator *allocator, int64_t *alone, struct block *first, uint64_t count);

/* Takes a batch of blocks of `size` bytes. Returns NULL if there is none, or the list is busy.
 * `alone`: the count of the cache that takes, or NULL. */
struct block *transfer_take(struct allocator *allocator, int64_t *alone, uint64_t size);

/* Has a batch been taken since the last call, or is the list busy? Clears the bit of an empty list;
 * nothing else does. */
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

/* Do they contend for the lock as well? Otherwise blocks fetched in advance cost more than they
 * save. */
static inline int caches_are_contended(const struct allocator *allocator)
{
    return caches_are_shared(allocator) && allocator->caches.contended;
}

static inline struct block *transfer_next(const struct block *batch)
{
    return batch->node.left ? block_of_node(batch->node.left) : NULL;
}

#endif
