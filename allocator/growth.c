/* Where blocks come from when no hole has them: from what is idle in the arena, and then from the
 * driver. Small blocks lie there with large ones, with which they share what is idle. */
#include "allocator/mapping/create.h"
#include "allocator/pool/arena_parts.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/pool.h"
#include "allocator/segment/segment.h"
#include "allocator/thread_cache/locked.h"

int arena_serves(const struct allocator *a, uint64_t size)
{
    enum pool pool = pool_for(a, size);
    if (a->as_native) /* small ones neither: packing.c */
        return 0;
    return (pool == POOL_MAPPED || pool == POOL_SMALL) && a->arena &&
           arena_part_for(a->arena, size)->segment;
}

/* Could idle memory do, with what the holes around it have in parts of chunks? At least one chunk
 * is missing, else there were a hole. */
static int may_do(const struct arena *arena, uint64_t size)
{
    uint64_t idle = arena_idle_bytes(arena);
    return idle && idle + 2 * arena->chunk_bytes > size;
}

/* Where what is idle is there in handles too large for the gaps, some of it goes back, if the work that may
 * use it is done: then as much is made anew, in smaller ones, and no more. */
int arena_claim(struct allocator *a, uint64_t size, struct block **taken)
{
    struct arena *arena = a->arena;
    arena_reunite(arena);
    if (!may_do(arena, size))
        return a->ops->out_of_memory;
    int code = arena_claim_in(arena, size, native_is_exact(a, size) ? CLAIM_ALONE : 0, taken);
    if (code == a->ops->out_of_memory && !a->forgotten && arena->unfit)
        arena_release(a, arena, arena->unfit, 0);
    return a->forgotten ? ALLOCATOR_PASS : code;
}

/* The work of a device that is not far behind, on a busy host; natively the frees had waited. */
#define MOMENT_NS 20000000

/* What is in the way of a block of its own chunks, and idle in a moment. Returns bytes. */
static uint64_t give_back(struct allocator *a, uint64_t size)
{
    uint64_t missing = a->arena->missing;
    if (a->arena->room + arena_idle_bytes(a->arena) >= native_bytes_of(size))
        return arena_release(a, a->arena, missing, MOMENT_NS);
    thread_caches_empty(a);
    return segment_release_whole(a, missing, MOMENT_NS);
}

#define ROUNDS 4 /* others may take what was given back */

/* Where blocks share no chunk idle memory in other pieces may have to go back first; but nobody waits
 * long for that: then chunks are shared after all. */
int arena_grow(struct allocator *a, uint64_t size, struct block **taken)
{
    for (int round = 0; round < ROUNDS && !a->forgotten && native_is_exact(a, size); round++) {
        int code = arena_claim_in(a->arena, size, CLAIM_GROW | CLAIM_ALONE, taken);
        if (code != a->ops->out_of_memory)
            return code;
        if (!a->arena->missing || !give_back(a, size))
            break;
    }
    int code = a->forgotten ? ALLOCATOR_PASS : arena_claim_in(a->arena, size, CLAIM_GROW, taken);
    if (code == a->ops->out_of_memory && !a->forgotten)
        code = arena_claim_in(a->arena, size, CLAIM_GROW | CLAIM_DIVIDE, taken);
    return code;
}
