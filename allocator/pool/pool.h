/* Pools of reusable blocks: taking, splitting, merging. */
#ifndef CACHALOT_ALLOCATOR_POOL_POOL_H
#define CACHALOT_ALLOCATOR_POOL_POOL_H

#include "allocator/base/policy.h"
#include "allocator/pool/arena.h"

/* That a block is in while it is reusable; that a request is served from. */
static inline enum pool block_pool(const struct block *block)
{
    return block->pinned ? POOL_PINNED : block->segment->pool;
}

/* Where mapping fails. */
static inline enum pool pool_ordinary(uint64_t size)
{
    return size <= MIB ? POOL_SMALL : POOL_LARGE;
}

#define DEDICATED_LEAST (2 * MIB)

static inline enum pool pool_for(const struct allocator *a, uint64_t size)
{
    if (size <= policy.apart_most ||
        (size <= PYTORCH_SMALL_SIZE &&
         (a->life.forgotten || !a->arena || arena_is_apart(a->arena, size))))
        return POOL_SMALL;
    if (a->domain->dedicated && size >= DEDICATED_LEAST)
        return POOL_DEDICATED;
    return a->arena && !a->growth.as_native ? POOL_MAPPED : POOL_LARGE;
}

/* Does mapped memory serve requests of that size? */
int arena_serves(const struct allocator *allocator, uint64_t size);

/* A reusable block for a request of `size`, cut to size; NULL: there is none. ordinary: where mapping failed there are
 * ordinary segments beside mapped memory. */
struct block *pool_take(struct allocator *allocator, uint64_t size);
struct block *pool_take_ordinary(struct allocator *allocator, uint64_t size);

struct block *pool_take_from(struct allocator *allocator, enum pool pool, uint64_t size);
void pool_split(struct allocator *allocator, struct block *block, uint64_t size);
void pool_insert(struct allocator *allocator, struct block *block);
void pool_remove(struct allocator *allocator, struct block *block);

/* The parts of insert and remove, for last_freed.c: into and out of the pool; of a block in it the bytes [begin, end)
 * are newly reusable, and all others were before; what is counted of a reusable block of `size`, a part of its segment or
 * (split: 0) all of it. */
void pool_put_in(struct allocator *allocator, struct block *block);
void pool_take_out(struct allocator *allocator, struct block *block);
void pool_note_in(struct block *block, uint64_t begin, uint64_t end);

static inline void pool_count_in(const struct segment *segment, uint64_t size, int split)
{
    struct device_stats *stats = segment->allocator->stats;
    stats_count(stats, COUNTER_reusable_bytes, size);
    if (size > stats_get(stats, COUNTER_largest_allocatable_bytes))
        stats_set(stats, COUNTER_largest_allocatable_bytes, size);
    if (split && !segment->arena) {
        stats_add(stats, STAT_inactive_split, segment->stat, 1);
        stats_add(stats, STAT_inactive_split_bytes, segment->stat, size);
    }
}

static inline void pool_count_out(const struct segment *segment, uint64_t size, int split)
{
    struct device_stats *stats = segment->allocator->stats;
    stats_count(stats, COUNTER_reusable_bytes, -size);
    if (split && !segment->arena) {
        stats_subtract(stats, STAT_inactive_split, segment->stat, 1);
        stats_subtract(stats, STAT_inactive_split_bytes, segment->stat, size);
    }
}

static inline int pool_can_merge(const struct block *block, const struct block *other)
{
    return other && other->state == BLOCK_REUSABLE && other->pinned == block->pinned;
}

int block_list(struct block *block); /* found by its address, and says whose it is; -1: no memory */
void pool_unlist(struct allocator *allocator, struct block *block); /* no more found by address */
void pool_forget(struct allocator *allocator, struct block *block); /* in no pool, nor needed */

/* Into its pool, merged with its neighbours: returns what it has become. join: takes a neighbour,
 * in no pool, into `block`. */
struct block *pool_merge(struct allocator *allocator, struct block *block);
void block_join(struct block *block, struct block *other);

#endif
