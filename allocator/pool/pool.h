/* Pools of reusable blocks: taking, splitting, merging. Sizes in bytes. The domain's lock is
 * held. */
#ifndef CACHALOT_ALLOCATOR_POOL_POOL_H
#define CACHALOT_ALLOCATOR_POOL_POOL_H

#include "allocator/base/policy.h"
#include "allocator/pool/arena.h"
#include "stats/os/direct.h"

/* The pool in which a block lies while it is reusable. */
static inline enum pool block_pool(const struct block *block)
{
    return block->pinned ? POOL_PINNED : block->segment->pool;
}

/* The pool of ordinary segments for a request, where mapping fails. */
static inline enum pool pool_ordinary(uint64_t size)
{
    return size <= MIB ? POOL_SMALL : POOL_LARGE;
}

#define DEDICATED_LEAST (2 * MIB)

/* The bytes of a block of `size` bytes in a pool of large blocks. Programs register these by page,
 * for network cards or files, and natively they begin on a page. So all blocks there are whole
 * pages. Except with thread_cache:off: in ordinary segments blocks lie where PyTorch's would. */
static inline uint64_t pool_round_in(const struct allocator *a, enum pool pool, uint64_t size)
{
    const struct options *o = &a->domain->options;
    int whole = pool == POOL_MAPPED || (pool == POOL_LARGE && o->thread_cache);
    return whole ? (size + o->page_bytes - 1) & ~(o->page_bytes - 1) : size;
}

/* The pool from which a request is served. */
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

/* The bytes of a block for a request of `size` bytes. */
static inline uint64_t pool_round(const struct allocator *a, uint64_t size)
{
    return pool_round_in(a, pool_for(a, size), size);
}

/* Does mapped memory serve requests of `size` bytes? */
int arena_serves(const struct allocator *allocator, uint64_t size);

/* Takes a reusable block for a request of `size` bytes, cut to size; NULL: there is none. ordinary:
 * from the ordinary segments that lie beside mapped memory where mapping has failed. */
struct block *pool_take(struct allocator *allocator, uint64_t size);
struct block *pool_take_ordinary(struct allocator *allocator, uint64_t size);

/* take_from: the same from one pool. split: cuts a block, which is in no pool, after `size` bytes
 * if the rest is worth it. The rest goes into its pool. insert: puts a block into its pool,
 * unmerged. remove: takes it out, whole. */
DIRECT struct block *pool_take_from(struct allocator *allocator, enum pool pool, uint64_t size);
void pool_split(struct allocator *allocator, struct block *block, uint64_t size);
void pool_insert(struct allocator *allocator, struct block *block);
void pool_remove(struct allocator *allocator, struct block *block);

/* The parts of insert and remove, for last_freed.c. put_in, take_out: into and out of the pool.
 * note_in: of a block in its pool the bytes [begin, end), by address, are newly reusable, and all
 * others were before. count_in, count_out: the statistics of a reusable block of `size` bytes;
 * split: it is a part of its segment, not all of it. */
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

/* Can the block merge with its neighbour `other`, which may be NULL? */
static inline int pool_can_merge(const struct block *block, const struct block *other)
{
    return other && other->state == BLOCK_REUSABLE && other->pinned == block->pinned;
}

/* list: puts a block into the domain's map, where frees find it by its address, and sets its grains
 * and owner. Returns 0, or -1 without host memory. unlist: takes it out of the map. forget: unlists
 * a block that is in no pool and gives its struct back. */
int block_list(struct block *block);
void block_unlist(struct block *block);
void pool_forget(struct allocator *allocator, struct block *block);

/* merge: puts a block into its pool, merged with its neighbours, and returns the result. join: adds
 * a neighbour, which is in no pool, to `block`. */
struct block *pool_merge(struct allocator *allocator, struct block *block);
void block_join(struct block *block, struct block *other);

#endif
