/* Arenas are made, one after another: chunks are as large as what a program has makes them.
 *
 * What lives in a chunk cannot be moved, so each block may waste up to one at its ends: small chunks
 * pack best. But each costs calls of the driver to be moved. So an arena that has grown to
 * CHUNKS_MOST small chunks is outgrown: another one grows from there on, with large ones. Of the
 * older one holes are served, and what is idle in it moves as before, until it becomes larger chunks
 * of the other one, which it does before that grows (arena_chunks.h). */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "allocator/arena_make.h"
#include "allocator/arena_parts.h"
#include "allocator/native.h"
#include "allocator/segment.h"

#ifndef CHUNKS_MOST /* tests have fewer */
#define CHUNKS_MOST 1536
#endif

static void *map_zeroes(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Its slot, a chunk, and a byte each in idle, present and cost. */
#define BYTES_OF_SLOT (sizeof(struct slot) + sizeof(struct chunk) + 3)

/* Tables for all slots of the range; they are touched, and cost memory, only as far as it is used.
 */
static struct arena *make_tables(uint64_t chunk_bytes, uint64_t address, uint64_t bytes)
{
    uint64_t slots = bytes / chunk_bytes;
    struct arena *arena =
        slots < UINT32_MAX ? map_zeroes(sizeof *arena + (slots + 1) * BYTES_OF_SLOT) : NULL;
    if (!arena)
        return NULL;
    arena->chunk_bytes = chunk_bytes;
    arena->base = address;
    arena->slots = (uint32_t)slots;
    arena->reserved = bytes;
    arena->part[LARGE_POOL].end = arena->slots;
    arena->part[SMALL_POOL].first = arena->part[SMALL_POOL].end = arena->slots;
    arena->slot = (struct slot *)(arena + 1);
    arena->chunk = (struct chunk *)(arena->slot + slots);
    arena->idle = (uint8_t *)(arena->chunk + slots + 1);
    arena->present = arena->idle + slots;
    arena->cost = arena->present + slots;
    if (!(chunk_bytes & (chunk_bytes - 1)))
        arena->shift = (unsigned)__builtin_ctzll(chunk_bytes);
    arena->epoch = 1;
    return arena;
}

#define SMALL_CHUNK (2 * MIB) /* as PyTorch's segments of small blocks */
#define SMALL_SHARE 8         /* of the addresses: as many as the device has memory */

/* The last slots are for small blocks; before them one is left free, so that nothing goes on there.
 */
static void divide(struct arena *arena)
{
    uint32_t slots = arena->slots / SMALL_SHARE;
    arena->part[SMALL_POOL].first = arena->part[SMALL_POOL].top = arena->slots - slots;
    if (slots)
        arena->part[LARGE_POOL].end = arena->slots - slots - 1;
}

static void unmap_tables(struct arena *arena)
{
    munmap(arena, sizeof *arena + (arena->slots + (size_t)1) * BYTES_OF_SLOT);
}

struct arena *arena_create(struct allocator *a, const struct arena *older)
{
    uint64_t address = 0, bytes = 0, total = 0, largest;
    if (!a->ops->range_reserve || a->ops->range_reserve(a->device, &address, &bytes, &total))
        return NULL;
    uint64_t most = total < a->limit ? total : a->limit;
    uint64_t chunk_bytes = options_chunk_bytes(&a->domain->options, most, &largest);
    if (older)
        chunk_bytes = largest;
    struct arena *arena = make_tables(chunk_bytes, address, bytes);
    if (!arena) {
        a->ops->range_free(a->device, address, bytes);
        return NULL;
    }
    arena->allocator = a;
    if (!older && chunk_bytes == SMALL_CHUNK)
        divide(arena);
    arena->most = chunk_bytes < largest ? chunk_bytes * CHUNKS_MOST : UINT64_MAX;
    arena->noted = native_noted(most);
    return arena;
}

/* The segment of a part, all absent. */
static int begin_part(struct arena *arena, enum pool pool, enum stat_pool stat)
{
    struct allocator *a = arena->allocator;
    struct arena_part *part = &arena->part[stat];
    struct segment *segment = segment_new(a, pool, stat, arena_address(arena, part->first),
                                          (part->end - part->first) * arena->chunk_bytes);
    if (!segment)
        return -1;
    part->segment = segment;
    segment->arena = arena;
    segment_list(segment);
    arena_put(segment->first, BLOCK_ABSENT);
    return 0;
}

int arena_begin(struct allocator *a, struct arena *arena)
{
    const struct arena *older = arena->older = a->arena;
    struct arena_part *small = &arena->part[SMALL_POOL];
    if (begin_part(arena, POOL_MAPPED, LARGE_POOL))
        return -1;
    if (small->first < small->end && begin_part(arena, POOL_SMALL, SMALL_POOL))
        *small = (struct arena_part){.first = arena->slots, .end = arena->slots};
    if (older) {
        memcpy(arena->sizes, older->sizes, sizeof arena->sizes);
        arena->irregular = older->irregular;
        arena->varied = older->varied;
    }
    a->arena = arena;
    return 0;
}

void arena_destroy(struct allocator *a, struct arena *arena)
{
    a->ops->range_free(a->device, arena->base, arena->reserved);
    unmap_tables(arena);
}

void arena_outgrow(struct allocator *a, uint64_t size)
{
    while (!a->forgotten && arena_is_outgrown(a->arena, size)) {
        struct arena *arena = a->arena;
        allocator_call(a);
        struct arena *next = arena_create(a, arena);
        allocator_return(a);
        int wanted = !a->forgotten && a->arena == arena;
        if (wanted && next && arena_begin(a, next) == 0)
            continue;
        if (wanted)
            arena->most = UINT64_MAX; /* then this one does it */
        if (next) {
            allocator_call(a);
            arena_destroy(a, next);
            allocator_return(a);
        }
    }
}
