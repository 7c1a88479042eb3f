/* Where blocks come from when no hole has them: from what is idle in the arenas, the newest first,
 * then from what is idle in all of them together, and then from the driver. Small blocks lie in the first arena alone, beside large ones, with which
 * they share what is idle. */
#include "allocator/arena_chunks.h"
#include "allocator/arena_make.h"
#include "allocator/arena_parts.h"
#include "allocator/native.h"
#include "allocator/pool.h"
#include "allocator/segment.h"
#include "allocator/thread_caches.h"

/* The next arena from `arena` on that has blocks of `size`. */
static struct arena *for_size(struct arena *arena, uint64_t size)
{
    while (arena && !arena_part_for(arena, size)->segment)
        arena = arena->older;
    return arena;
}

int arena_serves(const struct allocator *a, uint64_t size)
{
    enum pool pool = pool_for(a, size);
    return (pool == POOL_MAPPED || pool == POOL_SMALL) && for_size(a->arena, size);
}

/* Could idle memory do, with what the holes around it have in parts of chunks? At least one chunk
 * is missing, else there were a hole. */
static int may_do(const struct arena *arena, uint64_t size)
{
    uint64_t idle = arena_idle_bytes(arena);
    return idle && idle + 2 * arena->chunk_bytes > size;
}

int arena_claim(struct allocator *a, uint64_t size, struct block **taken)
{
    int code = a->ops->out_of_memory, flags = native_is_exact(a, size) ? CLAIM_ALONE : 0;
    for (struct arena *arena = a->arena; (arena = for_size(arena, size)); arena = arena->older) {
        if (may_do(arena, size))
            code = arena_claim_in(arena, size, flags, taken);
        if (code != a->ops->out_of_memory || a->forgotten)
            break;
    }
    struct arena *arena = a->arena;
    if (code == a->ops->out_of_memory && !a->forgotten && size > MIB && arena_gatherable(arena) &&
        arena_idle_bytes(arena) + arena_gatherable(arena) + 2 * arena->chunk_bytes > size)
        code = arena_claim_in(arena, size, flags | CLAIM_GATHER, taken);
    return code;
}

/* The work of a device that is not far behind, on a busy host; natively the frees had waited. */
#define MOMENT_NS 20000000

/* What is in the way of a block of its own chunks, and idle in a moment. Returns bytes. */
static uint64_t give_back(struct allocator *a, uint64_t size)
{
    uint64_t have = a->arena->room, missing = a->arena->missing;
    for (const struct arena *arena = a->arena; arena; arena = arena->older)
        have += arena_idle_bytes(arena);
    if (have >= native_bytes_of(size))
        return arena_release(a, a->arena, missing, MOMENT_NS);
    thread_caches_empty(a);
    return segment_release_whole(a, missing, MOMENT_NS);
}

uint64_t arena_release_others(struct allocator *a, uint64_t size, uint64_t bytes,
                              uint64_t timeout_ns)
{
    return arena_release_between(a, a->arena, for_size(a->arena, size), bytes, timeout_ns);
}

/* Could the request be served at all? The lock is dropped meanwhile. Who asks for more than there is,
 * to see how much that is, shall change nothing. */
static int may_grow(struct allocator *a, uint64_t size)
{
    uint64_t room = 0, total = 0, reserved = segment_reserved(a);
    allocator_call(a);
    int code = a->ops->memory_free(a->device, &room, &total);
    allocator_return(a);
    if (code || a->forgotten)
        return !a->forgotten;
    uint64_t below = a->limit > reserved ? a->limit - reserved : 0;
    room = room < below ? room : below;
    for (const struct arena *arena = a->arena; arena; arena = arena->older)
        room += arena_idle_bytes(arena);
    return size <= room;
}

#define ROUNDS 4 /* others may take what was given back */

/* Where blocks share no chunk, the last one of each has a size of its own, and idle memory in other
 * pieces may have to go back first; but nobody waits long for that: then chunks are shared after all. */
int arena_grow(struct allocator *a, uint64_t size, struct block **taken)
{
    if (size <= MIB) {
        arena_release_others(a, size, size, 0);
        return a->forgotten ? ALLOCATOR_PASS
                            : arena_claim_in(for_size(a->arena, size), size, CLAIM_GROW, taken);
    }
    if (arena_is_outgrown(a->arena, size) && !native_is_varied(a, size) && may_grow(a, size))
        arena_outgrow(a, size);
    for (int round = 0; round < ROUNDS && !a->forgotten && native_is_exact(a, size); round++) {
        int code = arena_claim_in(a->arena, size, CLAIM_GROW | CLAIM_ALONE, taken);
        if (code != a->ops->out_of_memory)
            return code;
        if (!a->arena->missing || !give_back(a, size))
            break;
    }
    if (a->forgotten)
        return ALLOCATOR_PASS;
    struct arena *older = a->arena->older;
    return arena_claim_in(older && native_is_varied(a, size) ? older : a->arena, size, CLAIM_GROW,
                          taken);
}
