/* Freeing: finds the block of an address, and makes it reusable by its lane, its thread's cache or
 * a fence. */
#include <assert.h>
#include <stddef.h>

#include "allocator/allocator.h"
#include "allocator/last_freed.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/reusable.h"
#include "allocator/pool/segment_books.h"
#include "allocator/reuse/fence.h"
#include "allocator/segment/segment.h"
#include "allocator/state/record.h"
#include "allocator/thread_cache/locked.h"
#include "allocator/reuse/lane.h"
#include "allocator/reuse/look.h"
#include "allocator/state/enter.h"

/* For an address at which the program holds no block. Returns ALLOCATOR_INVALID, and counts a
 * double free, if it is in a segment of ours; else ALLOCATOR_UNKNOWN. The lock is held. */
static int unknown_or_invalid(struct domain *domain, uint64_t address)
{
    struct segment *segment = segment_holding(domain, address);
    if (!segment)
        return ALLOCATOR_UNKNOWN;
    stats_count(segment->allocator->stats, COUNTER_num_double_frees, 1);
    return ALLOCATOR_INVALID;
}

/* Makes a block reusable: at once on a lane, else behind a fence. */
static int free_in_order(struct allocator *a, struct block *block, enum free_kind kind)
{
    int async = kind == FREED_ASYNC;
    a->frees++;
    if (kind == FREED_IDLE) {
        stats_count(a->stats, COUNTER_num_lane_frees, 1);
        block_becomes_reusable(block);
        return 0;
    }
    if (!block->shared && !async && !a->fences.no_events && lane_free(a)) {
        stats_count(a->stats, COUNTER_num_lane_frees, 1);
        if (block_size(block) > CACHE_MOST || !thread_cache_keep(block))
            block_becomes_reusable(block);
        return 0;
    }
    if (!async)
        thread_cache_settle(a);
    return fence_free(a, block, async);
}

static int settle(struct allocator *a, struct block *block, enum free_kind kind)
{
    int code = 0;
    if (kind == FREED_NATIVE)
        look_at_free(a);
    if (kind == FREED_NATIVE && !a->life.forgotten && allocator_owes_host(a))
        code = fence_wait_for_host_work(a);
    if (a->life.forgotten)
        return code; /* the block is forgotten with it */
    if (a->domain->options.cache) {
        int error = free_in_order(a, block, kind);
        return code ? code : error;
    }
    block_becomes_reusable(block); /* the whole segment is idle */
    if (kind == FREED_NATIVE && (!segment_release(block->segment) || a->life.forgotten))
        return 0;
    segment_hand_over(block->segment); /* the program gets the driver's answer */
    return ALLOCATOR_PASS;
}

/* Returns the block that the program holds at `address`, or NULL. From here on the program does not
 * hold it, whatever other threads do. */
static struct block *held_at(struct domain *domain, uint64_t address)
{
    struct thread_cache *cache = thread_cache_of(domain);
    struct block *block = cache ? cache->found : NULL; /* perhaps this one */
    uint64_t claim = block ? atomic_load_explicit(&block->claim, memory_order_relaxed) : 0;
    if (claim - claim % CLAIM_KINDS != address)
        block = domain_block_at(domain, address);
    if (!block)
        return NULL;
    if (block_claimed(block) == CLAIM_HELD) { /* only the holder of the lock changes it */
        block_claim(block, CLAIM_NOBODY);
        return block;
    }
    uint64_t easy = address | CLAIM_EASY;
    return atomic_compare_exchange_strong(&block->claim, &easy, address | CLAIM_NOBODY) ? block
                                                                                        : NULL;
}

/* Does the free of this block pass no peak, whatever this thread counted alone? If only a fence
 * makes it reusable, free_in_order settles the cache. */
static int raises_no_peak(const struct block *block)
{
    const struct allocator *a = block->segment->allocator;
    return block->segment->arena && block_size(block) > CACHE_MOST && !a->fences.pending &&
           !allocator_owes_host(a);
}

/* Frees a block that the program held until now, and gives the lock back. */
__attribute__((noinline)) static int free_held(struct block *block, enum free_kind kind)
{
    struct allocator *a = block->segment->allocator;
    enum stat_pool stat = block_stat(block);
    stats_begin(a->stats);
    if (kind == FREED_NATIVE && !raises_no_peak(block))
        thread_cache_settle(a);
    packing_count(a, block_size(block), -1);
    stats_subtract(a->stats, STAT_allocation, stat, 1);
    stats_subtract(a->stats, STAT_allocated_bytes, stat, block_size(block));
    stats_histogram(a->stats, block_requested(block), -1);
    record_block(block, EVENT_free);
    block->state = BLOCK_PENDING;
    block->link = NULL;
    int code = 0;
    if (kind == FREED_LATE)
        stats_count(a->stats, COUNTER_num_late_frees, 1);
    else
        code = settle(a, block, kind);
    allocator_note_slow(a);
    assert(a->domain->is_valid(a));
    stats_end(a->stats);
    domain_unlock(a->domain);
    return code;
}

static inline int is_kept(struct block *block, enum free_kind kind)
{
    return kind == FREED_NATIVE ? last_freed_keep(block)
                                : kind == FREED_IDLE && last_freed_keep_idle(block);
}

DIRECT int domain_free(struct domain *domain, uint64_t address, enum free_kind kind)
{
    if (kind != FREED_LATE)
        look_if_watched(domain);
    domain_lock(domain);
    struct block *block = held_at(domain, address);
    if (block && !is_kept(block, kind))
        return free_held(block, kind);
    int code = block ? 0 : unknown_or_invalid(domain, address);
    domain_unlock(domain);
    return code;
}

void allocator_note_host_work(struct allocator *a)
{
    allocator_enter(a);
    if (!a->life.forgotten)
        fence_note_host_work(a);
    allocator_leave(a);
}
