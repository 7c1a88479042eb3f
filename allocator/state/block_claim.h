/* Claim words. A block's claim is its address and one of the kinds below. It tells threads without
 * the lock what they may do with the block (rule 2 at the head of thread_cache/own.c). */
#ifndef CACHALOT_ALLOCATOR_STATE_BLOCK_CLAIM_H
#define CACHALOT_ALLOCATOR_STATE_BLOCK_CLAIM_H

#include "allocator/state/block.h"

/* NOBODY: neither the program nor a cache holds the block. EASY: the program holds it, and a free
 * without the lock may take it. HELD: the program holds it; only a free with the lock takes it.
 * CACHED: a thread cache or the transfer cache holds it.
 *
 * A free without the lock changes EASY into CACHED by a compare-and-swap. Address and kind are one
 * word, so of two frees of one block one wins. */
enum { CLAIM_NOBODY, CLAIM_EASY, CLAIM_HELD, CLAIM_CACHED, CLAIM_KINDS };

/* Sets the claim to the block's address and `kind`. */
static inline void block_claim(struct block *block, int kind)
{
    atomic_store_explicit(&block->claim, block_address(block) | (unsigned)kind,
                          memory_order_release);
}

/* The same where the claim already has the address, which is returned. block_address would read
 * another cache line. */
static inline uint64_t block_claim_again(struct block *block, int kind)
{
    uint64_t claim = atomic_load_explicit(&block->claim, memory_order_relaxed);
    uint64_t address = claim / CLAIM_KINDS * CLAIM_KINDS;
    atomic_store_explicit(&block->claim, address | (unsigned)kind, memory_order_release);
    return address;
}

/* May a thread cache hold it? Except when it lies among large blocks: there it would keep holes
 * small. */
static inline int block_is_cacheable(const struct block *block)
{
    return block->segment->pool == POOL_SMALL && !block->pinned && block_size(block) <= MIB;
}

/* Hands the block to the program: EASY if a free without the lock may take it, else HELD. The free
 * of a block that counts at a call site takes the lock. */
static inline void block_claim_for_program(struct block *block)
{
    int easy = block_is_cacheable(block) && block_requested(block) && !block->site;
    block_claim(block, easy ? CLAIM_EASY : CLAIM_HELD);
}

/* The kind of the claim of a block in the map. */
static inline int block_claimed(const struct block *block)
{
    return (int)(atomic_load_explicit(&block->claim, memory_order_acquire) % CLAIM_KINDS);
}

/* Prefetches, for writing, the cache line that a thread without the lock touches. NULL is
 * allowed. */
static inline void block_expect(const struct block *block)
{
    __builtin_prefetch((const void *)((uintptr_t)block + offsetof(struct block, requested)), 1);
}

/* Does a thread cache or the transfer cache hold it? Its state is ALLOCATED then, but everything
 * that counts or lists blocks takes it as reusable. */
static inline int block_is_cached(const struct block *block)
{
    return block->state == BLOCK_ALLOCATED && block_claimed(block) == CLAIM_CACHED;
}

#endif
