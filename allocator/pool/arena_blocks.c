/* Mapped memory: which addresses have memory below them, and why memory may move.
 *
 * A claim serves a request for which no hole is large enough. The request gets addresses of which
 * some have no memory, and chunks that are idle elsewhere are mapped there too. A chunk is idle
 * when all of its bytes are reusable. A reusable byte may be handed out under any address. The
 * fence that has passed, or the order of the lane, speaks of the memory and not of the address.
 * Writes through one address are visible through another from the next kernel or copy on (CUDA
 * guide, "virtual aliasing"). Two successive owners of a byte share no more than that.
 *
 * So moving a chunk waits for nothing, and its old mapping stays. When the program repeats itself,
 * addresses that it used before have their memory as soon as that is idle again (claim.c), without
 * a driver call.
 *
 * A mapping is taken down only when all work that may use its address has finished. The slot was
 * left in an epoch, and a fence recorded later has shown that this epoch is over (claim.c,
 * release.c). */
#include "allocator/pool/arena_blocks.h"
#include "allocator/pool/arena_chunks.h"

#include <assert.h>
#include <string.h>

#include "allocator/pool/packing.h"
#include "allocator/pool/pool.h"

/* Pins slots [from, to) and the parts of blocks that lie there. `block` lies at least partly
 * there. */
static void pin_slots(struct block *block, uint32_t from, uint32_t to)
{
    struct arena *arena = block->segment->arena;
    uint64_t begin = arena_address(arena, from), end = arena_address(arena, to);
    for (uint32_t slot = from; slot < to; slot++)
        arena->slot[slot].pinned = 1;
    while (block->previous && block_address(block) > begin)
        block = block->previous;
    for (; block && block_address(block) < end; block = block->next) {
        if (block->state == BLOCK_REUSABLE && !block->pinned && !arena_fill_kit(arena, 4)) {
            uint64_t low = block_address(block), high = low + block_size(block);
            block = arena_isolate(arena, block, low < begin ? begin : low, high < end ? high : end);
            block->pinned = 1;
            block = arena_put(block, BLOCK_REUSABLE); /* may be the pinned block before it */
        }
        block->pinned |= block->state < BLOCK_ABSENT && block->state != BLOCK_REUSABLE;
        if (block->pinned && block_claimed(block) == CLAIM_EASY)
            block_claim(block, CLAIM_HELD);
    }
}

void arena_pin(struct block *block)
{
    struct arena *arena = block->segment->arena;
    uint64_t begin = block_address(block) - arena->base, last = begin + block_size(block) - 1;
    uint32_t from = arena_handle_at(arena, (uint32_t)arena_slot_at(begin));
    uint32_t to = arena_handle_end(arena, (uint32_t)arena_slot_at(last));
    pin_slots(block, from, to);
    for (uint32_t slot = from, other; arena->divided && slot < to; slot++)
        if ((other = arena_other_slot(arena, slot)) != slot)
            pin_slots(arena->slot[other].hole, other, other + 1);
}

/* Takes the chunk from its slot; its handle lies wholly in an isolated block. */
static void retire_chunk(struct arena *arena, uint32_t slot)
{
    struct slot *s = &arena->slot[slot];
    struct chunk *chunk = &arena->chunk[s->chunk];
    chunk->owner = chunk->home = 0;
    arena->present[slot] = NOT_PRESENT;
    chunk->retired = 1;
    arena_count_spare(arena, chunk, 1);
    s->pinned = 0;
    s->since = arena->left.epoch;
}

/* A block may be pinned only because it shares a handle with a pinned one. Its parts in other
 * handles are reusable as any. */
void arena_retire(struct block *block)
{
    struct arena *arena = block->segment->arena;
    uint64_t end = block_address(block) + block_size(block), until;
    for (uint64_t at = block_address(block); at < end; at = until) {
        uint32_t slot = (uint32_t)arena_slot_at(at - arena->base);
        uint32_t next = arena_handle_end(arena, slot), number = arena->slot[slot].chunk;
        int pinned = arena->slot[slot].pinned;
        until = arena_address(arena, next) < end ? arena_address(arena, next) : end;
        if (pinned && until - at < arena_handle_bytes(arena, number))
            continue; /* another block has a part of it */
        if (arena_fill_kit(arena, 4))
            return;
        struct block *part = arena_isolate(arena, block, at, until);
        block = part->next;
        part->pinned = 0;
        for (; pinned && slot < next; slot++)
            retire_chunk(arena, slot);
        arena_put(part, pinned ? BLOCK_ABSENT : BLOCK_REUSABLE);
    }
}

int arena_fill_kit(struct arena *arena, unsigned blocks)
{
    for (; arena->kit.count < blocks; arena->kit.count++) {
        struct block *block = slab_take(&arena->allocator->domain->blocks);
        if (!block)
            return -1;
        block->link = arena->kit.first;
        arena->kit.first = block;
    }
    return 0;
}

void arena_put_kit(struct allocator *a, struct arena *arena, struct block *kit, unsigned kits)
{
    if (!a->life.forgotten && !arena->kit.first) {
        arena->kit.first = kit;
        arena->kit.count = kits;
        return;
    }
    for (struct block *next; kit; kit = next) {
        next = kit->link;
        if (a->life.forgotten) {
            slab_give(&a->domain->blocks, kit);
        } else {
            kit->link = arena->kit.first;
            arena->kit.first = kit;
            arena->kit.count++;
        }
    }
}

struct block *arena_cut(struct arena *arena, struct block *block, uint64_t address)
{
    uint64_t offset = address - block_address(block);
    if (!offset)
        return block;
    struct block *rest = arena->kit.first;
    assert(rest && offset < block_size(block));
    arena->kit.first = rest->link;
    arena->kit.count--;
    rest->link = NULL;
    rest->segment = block->segment;
    rest->state = block->state;
    rest->pinned = block->pinned;
    rest->previous = block;
    rest->next = block->next;
    rest->node.major = block_size(block) - offset;
    rest->node.minor = address;
    block->node.major = offset;
    block->next = rest;
    if (rest->next)
        rest->next->previous = rest;
    return rest;
}

struct block *arena_isolate(struct arena *arena, struct block *block, uint64_t begin, uint64_t end)
{
    enum block_state state = block->state;
    if (state == BLOCK_REUSABLE)
        pool_remove(arena->allocator, block);
    struct block *part = arena_cut(arena, block, begin), *rest = NULL;
    if (end < block_address(part) + block_size(part))
        rest = arena_cut(arena, part, end);
    part->state = BLOCK_CLAIMED; /* so that nothing merges with it */
    if (part != block)
        arena_put(block, state);
    if (rest)
        arena_put(rest, state);
    return part;
}

struct block *arena_put(struct block *block, enum block_state state)
{
    struct arena *arena = block->segment->arena;
    if (state == BLOCK_REUSABLE)
        return pool_merge(arena->allocator, block);
    block->state = BLOCK_ABSENT;
    if (block->next && block->next->state == BLOCK_ABSENT)
        block_join(block, block->next);
    if (block->previous && block->previous->state == BLOCK_ABSENT)
        block_join(block, block->previous);
    uint64_t slot = arena_slot_at(block_address(block) - arena->base + CHUNK_BYTES - 1);
    if (arena_address(arena, slot) < block_address(block) + block_size(block))
        arena->slot[slot].hole = block; /* else no slot begins in it */
    return block;
}

void arena_evict(struct arena *arena, uint32_t slot, uint32_t end)
{
    struct block *block = arena_isolate(arena, arena_block_at(arena, slot),
                                        arena_address(arena, slot), arena_address(arena, end));
    for (; slot < end; slot++) {
        arena->chunk[arena->slot[slot].chunk].owner = 0;
        arena->present[slot] = NOT_PRESENT;
        arena->slot[slot].since = arena->left.epoch;
    }
    arena_put(block, BLOCK_ABSENT);
}
