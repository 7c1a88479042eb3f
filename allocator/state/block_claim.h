/* Whose is a block? Its claim says so to threads that hold no lock (own.c). */
#ifndef CACHALOT_ALLOCATOR_STATE_BLOCK_CLAIM_H
#define CACHALOT_ALLOCATOR_STATE_BLOCK_CLAIM_H

#include "allocator/state/block.h"

/* In a claim: what may be done with the block. A thread's free takes a block by changing EASY into
 * CACHED, so address and right are one word: of two frees one wins. */
enum { CLAIM_NOBODY, CLAIM_EASY, CLAIM_HELD, CLAIM_CACHED, CLAIM_KINDS };

static inline void block_claim(struct block *block, int kind)
{
    atomic_store_explicit(&block->claim, block_address(block) | (unsigned)kind,
                          memory_order_release);
}

/* The same where the claim has the address already, which it returns: block_address may lie in
 * another line. */
static inline uint64_t block_claim_again(struct block *block, int kind)
{
    uint64_t claim = atomic_load_explicit(&block->claim, memory_order_relaxed);
    uint64_t address = claim / CLAIM_KINDS * CLAIM_KINDS;
    atomic_store_explicit(&block->claim, address | (unsigned)kind, memory_order_release);
    return address;
}

/* May a thread cache have it? Not what lies among large blocks, where it would keep their holes small. */
static inline int block_is_cacheable(const struct block *block)
{
    return block->segment->pool == POOL_SMALL && !block->pinned && block_size(block) <= MIB;
}

/* The program's: may a thread's free take it? */
static inline void block_claim_for_program(struct block *block)
{
    int easy = block_is_cacheable(block) && block_requested(block);
    block_claim(block, easy ? CLAIM_EASY : CLAIM_HELD);
}

/* Whose is a block of the map? */
static inline int block_claimed(const struct block *block)
{
    return (int)(atomic_load_explicit(&block->claim, memory_order_acquire) % CLAIM_KINDS);
}

/* The line that a thread needs of it is fetched, to be changed; NULL: none. */
static inline void block_expect(const struct block *block)
{
    __builtin_prefetch((const void *)((uintptr_t)block + offsetof(struct block, requested)), 1);
}

/* A block that its thread alone knows is reusable, for all who count. */
static inline int block_is_cached(const struct block *block)
{
    return block->state == BLOCK_ALLOCATED && block_claimed(block) == CLAIM_CACHED;
}

#endif
