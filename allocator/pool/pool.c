/* Pools: which reusable block a request gets, what is split off, and how reusable neighbours merge.
 * In ordinary segments the rules are PyTorch's (c10/cuda/CUDACachingAllocator.cpp), to the byte,
 * until memory is short (is_kept_whole). In mapped memory a low hole serves (arena_fit.c). */
#include "allocator/pool/arena_fit.h"
#include "allocator/base/policy.h"
#include "allocator/pool/arena_holes.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/pool.h"
#include "allocator/pool/segment_books.h"

#define LEAST_REST BLOCK_GRAIN /* small, and in mapped memory, where nothing ever stays split */

int arena_serves(const struct allocator *a, uint64_t size)
{
    enum pool pool = pool_for(a, size);
    if (a->growth.as_native) /* no size: head of packing.c */
        return 0;
    return (pool == POOL_MAPPED || pool == POOL_SMALL) && a->arena &&
           arena_part_for(a->arena, size)->segment;
}

static int is_split(const struct block *block)
{
    return block->previous || block->next;
}

static void note_largest(struct allocator *a)
{
    uint64_t largest = a->arena ? arena_fit_largest(a->arena) : 0;
    for (enum pool pool = 0; pool < POOLS; pool++) {
        struct treap_node *last = bins_last(&a->pool[pool]);
        if (last && last->major > largest)
            largest = last->major;
    }
    stats_set(a->stats, COUNTER_largest_allocatable_bytes, largest);
}

void pool_put_in(struct allocator *a, struct block *block)
{
    block->state = BLOCK_REUSABLE;
    a->taken = NULL;
    enum pool pool = block_pool(block);
    if (pool == POOL_MAPPED)
        arena_fit_in(block);
    else
        bins_insert(&a->pool[pool], &block->node);
}

void pool_take_out(struct allocator *a, struct block *block)
{
    a->taken = NULL;
    enum pool pool = block_pool(block);
    if (pool == POOL_MAPPED)
        arena_fit_out(block);
    else
        bins_remove(&a->pool[pool], &block->node);
}

void pool_note_in(struct block *block, uint64_t begin, uint64_t end)
{
    if (block->segment->arena)
        arena_note_in(block, begin, end);
    else if (!is_split(block))
        segment_becomes_idle(block->segment);
}

static void put_in(struct allocator *a, struct block *block)
{
    pool_put_in(a, block);
    pool_count_in(block->segment, block_size(block), is_split(block));
}

static void take_out(struct allocator *a, struct block *block)
{
    uint64_t size = block_size(block);
    pool_take_out(a, block);
    pool_count_out(block->segment, size, is_split(block));
    if (size == stats_get(a->stats, COUNTER_largest_allocatable_bytes))
        note_largest(a);
}

void pool_insert(struct allocator *a, struct block *block)
{
    put_in(a, block);
    pool_note_in(block, block_address(block), block_address(block) + block_size(block));
}

/* Does a whole segment stay whole for a request of `size` bytes? Only a whole segment can be given
 * back. Once much of the device has been in use (`pressed`), segments larger than the common one
 * stay whole. Those of the common size are cut: blocks pack better there than in granules of their
 * own (test/record/crowds.md, "Ordinary segments under pressure"). Once large blocks are the
 * driver's own, all stay whole. Exception to all of this: a small request may cut a whole segment,
 * since it would have no other memory. */
static int is_kept_whole(const struct allocator *a, enum pool pool, const struct block *block,
                         uint64_t size)
{
    if (pool != POOL_LARGE || is_split(block) || size <= PYTORCH_SMALL_SIZE)
        return 0;
    return a->growth.as_native ||
           (a->growth.pressed && block->segment->size > a->domain->options.large_segment_bytes);
}

/* May a request of `size` bytes have this block, the best fit of its pool? */
static int may_take(const struct allocator *a, enum pool pool, const struct block *block,
                    uint64_t size)
{
    const struct options *o = &a->domain->options;
    uint64_t have = block_size(block);
    if (pool == POOL_MAPPED || pool == POOL_SMALL)
        return 1;
    if (pool == POOL_DEDICATED || is_kept_whole(a, pool, block, size))
        return have - size < (pool == POOL_DEDICATED && !a->growth.as_native &&
                                      size / policy.dedicated_part > DEDICATED_LEAST
                                  ? size / policy.dedicated_part
                                  : DEDICATED_LEAST);
    if (size < o->max_split_size && have >= o->max_split_size)
        return 0;
    return size < o->max_split_size || have - size < o->max_non_split_rounding;
}

static int should_split(const struct allocator *a, const struct block *block, uint64_t size)
{
    const struct options *o = &a->domain->options;
    enum pool pool = block->segment->pool;
    uint64_t have = block_size(block);
    if (is_kept_whole(a, pool, block, size))
        return 0;
    if (pool == POOL_SMALL || pool == POOL_MAPPED || size <= PYTORCH_SMALL_SIZE)
        return have - size >= LEAST_REST;
    return have - size > PYTORCH_SMALL_SIZE && pool == POOL_LARGE && size < o->max_split_size;
}

/* Cuts `block`, which is in no pool, after `size` bytes if the rest is worth it, and returns the
 * rest. Without host memory for another struct the block stays whole: its end is lost while it
 * lives. */
static struct block *cut(struct allocator *a, struct block *block, uint64_t size)
{
    struct block *rest;
    size = pool_round_in(a, block->segment->pool, size); /* a small request may be served here */
    if (size >= block_size(block) || !should_split(a, block, size) ||
        !(rest = slab_take(&a->domain->blocks)))
        return NULL;
    rest->node.major = block_size(block) - size;
    rest->node.minor = block_address(block) + size;
    rest->segment = block->segment;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next)
        rest->next->previous = rest;
    block->next = rest;
    block->node.major = size;
    return rest;
}

void pool_split(struct allocator *a, struct block *block, uint64_t size)
{
    struct block *rest = cut(a, block, size);
    if (rest)
        pool_insert(a, rest);
}

/* Takes a reusable block out of its pool, cut to size. The rest goes back into the pool; it was
 * reusable before. Nothing merges with the block from here on. */
static void take_front(struct allocator *a, struct block *block, uint64_t size)
{
    struct segment *segment = block->segment;
    int whole = !is_split(block);
    take_out(a, block);
    block->state = BLOCK_CLAIMED;
    struct block *rest = cut(a, block, size);
    if (rest)
        put_in(a, rest);
    if (segment->arena)
        arena_note_out(block, rest);
    else if (whole)
        segment_leaves_idle(segment);
}

void pool_remove(struct allocator *a, struct block *block)
{
    take_front(a, block, block_size(block));
}

/* The best fit. Among large blocks of mapped memory it is mostly the lowest hole: then blocks lie
 * close together, and chunks further up become wholly idle. */
static struct block *choose(const struct allocator *a, enum pool pool, uint64_t size)
{
    if (pool == POOL_MAPPED)
        return a->arena && !a->life.forgotten ? arena_fit_find(a->arena, size) : NULL;
    struct treap_node *node = bins_at_least(&a->pool[pool], size, 0);
    return node ? block_of_node(node) : NULL;
}

DIRECT struct block *pool_take_from(struct allocator *a, enum pool pool, uint64_t size)
{
    struct block *block = choose(a, pool, size);
    if (!block || !may_take(a, pool, block, size))
        return NULL;
    take_front(a, block, size);
    return block;
}

/* Takes a hole of mapped memory that shares no chunk with other blocks and is no larger than
 * needed. */
static struct block *take_alone(struct allocator *a, uint64_t size)
{
    struct block *block = arena_fit_alone(a->arena, native_bytes_of(size));
    if (block)
        take_front(a, block, size);
    return block;
}

struct block *pool_take(struct allocator *a, uint64_t size)
{
    enum pool pool = pool_for(a, size);
    a->taken = pool == POOL_MAPPED && packing_is_exact(a, size) ? take_alone(a, size)
                                                                : pool_take_from(a, pool, size);
    return a->taken;
}

struct block *pool_take_ordinary(struct allocator *a, uint64_t size)
{
    a->taken = pool_take_from(a, pool_ordinary(size), size);
    return a->taken;
}

int block_list(struct block *block)
{
    const struct allocator *a = block->segment->allocator;
    if (atomic_load_explicit(&block->claim, memory_order_relaxed) == 0) {
        block_claim(block, CLAIM_NOBODY); /* the map's key */
        if (page_map_insert(&a->domain->listed, &block->listed)) {
            atomic_store_explicit(&block->claim, 0, memory_order_release);
            return -1;
        }
    }
    block->grains = (uint16_t)(block_size(block) / BLOCK_GRAIN);
    block->owner = a->number;
    return 0;
}

void block_unlist(struct block *block)
{
    if (atomic_load_explicit(&block->claim, memory_order_relaxed))
        page_map_remove(&block->segment->allocator->domain->listed, &block->listed);
}

void pool_forget(struct allocator *a, struct block *block)
{
    block_unlist(block);
    slab_give(&a->domain->blocks, block);
}

void block_join(struct block *block, struct block *other)
{
    struct allocator *a = block->segment->allocator;
    if (other == block->next) {
        block->next = other->next;
    } else {
        block_unlist(block); /* its address changes, and the map has the old one */
        block->previous = other->previous;
        block->node.minor = block_address(other);
    }
    block->node.major += block_size(other);
    if (block->next)
        block->next->previous = block;
    if (block->previous)
        block->previous->next = block;
    else
        block->segment->first = block;
    pool_forget(a, other);
}

/* The struct of the lower block stays. The map has it by its address, and in POOL_MAPPED, which
 * finds holes by address, it only grows. */
struct block *pool_merge(struct allocator *a, struct block *block)
{
    struct block *before = block->previous, *behind = block->next;
    uint64_t begin = block_address(block), end = begin + block_size(block);
    if (pool_can_merge(block, behind)) {
        pool_count_out(block->segment, block_size(behind), is_split(behind));
        pool_take_out(a, behind);
        block_join(block, behind);
    }
    if (pool_can_merge(block, before)) {
        pool_count_out(block->segment, block_size(before), is_split(before));
        if (block_pool(before) != POOL_MAPPED)
            pool_take_out(a, before);
        block_join(before, block);
        block = before;
    }
    put_in(a, block);
    pool_note_in(block, begin, end);
    return block;
}
