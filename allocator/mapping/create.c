/* Making an arena: its addresses, its tables, its segments. */
#include "allocator/mapping/create.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "allocator/base/policy.h"
#include "allocator/pool/arena_blocks.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/segment_books.h"

static void *map_zeroes(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* One slot, one chunk, and a byte each in idle, joined, present and cost. */
#define BYTES_OF_SLOT (sizeof(struct slot) + sizeof(struct chunk) + 4)

static size_t bytes_of_tables(uint32_t slots)
{
    struct max_tree fit;
    return sizeof(struct arena) + max_tree_begin(&fit, NULL, slots) +
           (slots + (size_t)1) * BYTES_OF_SLOT;
}

/* Makes tables for all slots of the range. They cost memory only as far as they are touched. */
static struct arena *make_tables(uint64_t address, uint64_t bytes)
{
    uint64_t slots = bytes / CHUNK_BYTES;
    struct arena *arena = NULL;
    if (slots && slots < UINT32_MAX / 4)
        arena = map_zeroes(bytes_of_tables((uint32_t)slots));
    if (!arena)
        return NULL;
    arena->base = address;
    arena->slots = (uint32_t)slots;
    arena->reserved = bytes;
    arena->part[LARGE_POOL].end = arena->slots;
    arena->part[SMALL_POOL].first = arena->part[SMALL_POOL].end = arena->slots;
    char *behind = (char *)(arena + 1);
    behind += max_tree_begin(&arena->fit, behind, arena->slots);
    arena->slot = (struct slot *)behind;
    arena->chunk = (struct chunk *)(arena->slot + slots);
    arena->idle = (uint8_t *)(arena->chunk + slots + 1);
    arena->joined = arena->idle + slots;
    arena->present = arena->joined + slots + 1;
    arena->cost = arena->present + slots;
    arena->left.epoch = 1;
    return arena;
}

#define SMALL_PART 8 /* of the addresses, one part of so many is for small blocks */

/* Gives the last slots to small blocks. One slot before them stays unused, so that nothing goes on
 * from one part into the other. */
static void divide(struct arena *arena)
{
    uint32_t slots = arena->slots / SMALL_PART;
    arena->part[SMALL_POOL].first = arena->part[SMALL_POOL].top = arena->slots - slots;
    if (slots)
        arena->part[LARGE_POOL].end = arena->slots - slots - 1;
}

static void unmap_tables(struct arena *arena)
{
    munmap(arena, bytes_of_tables(arena->slots));
}

struct arena *arena_create(struct allocator *a)
{
    uint64_t address = 0, bytes = 0;
    if (!a->ops->range_reserve || a->ops->range_reserve(a->device, &address, &bytes))
        return NULL;
    struct arena *arena = make_tables(address, bytes);
    if (!arena) {
        a->ops->range_free(a->device, address, bytes);
        return NULL;
    }
    arena->allocator = a;
    divide(arena);
    uint64_t most = options_handle_most(&a->domain->options, a->capacity);
    arena->claim.span_most = (uint32_t)(most / CHUNK_BYTES);
    arena->packing.noted = packing_noted(a->capacity);
    return arena;
}

/* Makes the segment of a part, all of it absent. Returns -1 without host memory. */
static int begin_part(struct arena *arena, enum pool pool, enum stat_pool stat)
{
    struct allocator *a = arena->allocator;
    struct arena_part *part = &arena->part[stat];
    struct segment *segment = segment_new(a, pool, stat, arena_address(arena, part->first),
                                          (uint64_t)(part->end - part->first) * CHUNK_BYTES);
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
    struct arena_part *small = &arena->part[SMALL_POOL];
    if (begin_part(arena, POOL_MAPPED, LARGE_POOL))
        return -1;
    if (small->first < small->end && begin_part(arena, POOL_SMALL, SMALL_POOL))
        *small = (struct arena_part){.first = arena->slots, .end = arena->slots};
    a->arena = arena;
    return 0;
}

void arena_destroy(struct allocator *a, struct arena *arena)
{
    a->ops->range_free(a->device, arena->base, arena->reserved);
    unmap_tables(arena);
}
