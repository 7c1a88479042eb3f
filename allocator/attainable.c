/* What a wait for memory could bring, as an upper bound. Blocks that the program does not hold are
 * pending, cached or reusable. Whole segments and handles of such blocks can go back to the driver,
 * or move. Of a handle that a live block holds in part, only a corner can join a block: one at the
 * block's front, and one at its back. */
#include "allocator/attainable.h"

#include <stddef.h>

#include "allocator/base/policy.h"
#include "allocator/pool/arena_chunks.h"
#include "allocator/pool/packing.h"
#include "allocator/state/enter.h"

/* loose: bytes in whole segments and handles. The others are of the request's own context: the
 * largest corners, and the largest run of blocks. held: bytes of the program. */
struct prospect {
    uint64_t loose, held, front, back, run;
};

static int is_held(const struct block *block)
{
    return (block->state == BLOCK_ALLOCATED && !block_is_cached(block)) ||
           block->state == BLOCK_CLAIMED;
}

/* Bytes that lie in memory of the block's own segment. */
static uint64_t present_bytes(const struct block *block)
{
    return block->state == BLOCK_ABSENT || block->state == BLOCK_ELSEWHERE ? 0 : block_size(block);
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The addresses of the handle that is mapped in a slot. */
static uint64_t handle_begin(const struct arena *arena, uint32_t slot)
{
    return arena_address(arena, arena_handle_at(arena, slot));
}

static uint64_t handle_end(const struct arena *arena, uint32_t slot)
{
    return handle_begin(arena, slot) + arena_handle_bytes(arena, arena->slot[slot].chunk);
}

/* Adds a run of the arena, from `first` to `last`, whose blocks have `bytes` bytes of memory. */
static void add_run(struct prospect *p, const struct block *first, const struct block *last,
                    uint64_t bytes, int serves)
{
    const struct arena *arena = first->segment->arena;
    uint64_t begin = block_address(first), end = block_address(last) + block_size(last);
    uint64_t front = 0, back = 0, inside = 0;
    if (present_bytes(first)) {
        uint32_t slot = (uint32_t)arena_slot_at(begin - arena->base);
        uint64_t until = handle_end(arena, slot);
        if (handle_begin(arena, slot) < begin)
            *(until <= end ? &front : &inside) = (until < end ? until : end) - begin;
    }
    if (present_bytes(last) && !inside) {
        uint32_t slot = (uint32_t)arena_slot_at(end - 1 - arena->base);
        if (handle_end(arena, slot) > end)
            back = end - handle_begin(arena, slot);
    }
    p->loose += bytes - inside - front - back;
    if (serves) {
        p->front = most(p->front, front);
        p->back = most(p->back, back);
    }
}

/* Adds a segment; serves: a request may get a part of it. */
static void add_segment(struct prospect *p, const struct segment *segment, int serves)
{
    for (const struct block *block = segment->first; block;) {
        const struct block *first = block, *last = block;
        uint64_t bytes = 0;
        if (is_held(block)) {
            p->held += block_size(block);
            block = block->next;
            continue;
        }
        for (; block && !is_held(block); block = block->next) {
            bytes += present_bytes(block);
            last = block;
        }
        if (segment->arena)
            add_run(p, first, last, bytes, serves);
        else if (bytes == segment->size)
            p->loose += bytes;
        p->run = serves ? most(p->run, bytes) : p->run;
    }
}

/* Adds the handles that no slot owns: spare, retired, or on their way to the driver. */
static void add_unowned(struct prospect *p, const struct arena *arena)
{
    for (uint32_t number = 1; arena && number <= arena->made; number++)
        if (arena->chunk[number].booked && !arena->chunk[number].owner)
            p->loose += CHUNK_BYTES;
}

/* Walks all blocks of the device. It does so only where memory is short, and a failure costs more. */
static struct prospect look(const struct allocator *a, uint64_t size)
{
    struct prospect p = {0};
    for (const struct allocator *other = a->domain->first; other; other = other->next) {
        if (other->stats != a->stats)
            continue;
        for (const struct segment *segment = other->segments; segment; segment = segment->next)
            add_segment(&p, segment, other == a && (size <= MIB || segment->stat == LARGE_POOL));
        add_unowned(&p, other->arena);
        p.loose += other->release.bytes;
    }
    return p;
}

/* Returns the bytes that the driver has free; UINT64_MAX: it does not say. */
static uint64_t ask(struct allocator *a)
{
    uint64_t available = 0, total;
    allocator_call(a);
    int code = a->ops->query_memory(a->device, &available, &total);
    allocator_return(a);
    return code || a->life.forgotten ? UINT64_MAX : available;
}

/* Returns how much may grow, if the driver has `available` bytes free and `loose` of ours went
 * back. */
static uint64_t room_for(const struct allocator *a, uint64_t available, uint64_t loose)
{
    uint64_t reserved = allocator_reserved(a);
    uint64_t kept = reserved > loose ? reserved - loose : 0;
    uint64_t below = a->limit > kept ? a->limit - kept : 0, room = available + loose;
    return (room < below ? room : below) / (2 * MIB) * (2 * MIB);
}

int attainable(struct allocator *a, uint64_t size)
{
    uint64_t whole = native_bytes_of(size), available;
    if (size > a->capacity)
        return 0;
    available = ask(a);
    if (available == UINT64_MAX || whole <= room_for(a, available, 0))
        return 1;
    const struct prospect p = look(a, size);
    uint64_t room = room_for(a, available, p.loose);
    if (a->domain->ending > allocator_own.ends) /* a context that ends gives all of it back */
        return size <= a->capacity - (p.held < a->capacity ? p.held : a->capacity);
    return whole <= room || size <= p.run || (a->arena && size <= room + p.front + p.back);
}

int attainable_by_release(struct allocator *a, uint64_t bytes, int is_short)
{
    uint64_t available = ask(a);
    if (is_short && available >= bytes)
        return 0;
    const struct prospect p = look(a, 0);
    return p.loose && (available == UINT64_MAX || bytes <= available + p.loose);
}
