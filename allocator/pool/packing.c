/* Packing: which blocks of mapped memory share chunks.
 *
 * Blocks that share chunks and granules with their neighbours save more memory than they cost,
 * until memory is short. Then a chunk may be held by a corner of one block, which no driver call
 * can move. Sharing cannot be undone at that time, so the first requests decide. If a program's
 * sizes come again, its blocks are packed. If they do not, its large blocks share no chunk
 * (grow_mapped in growth.c). Only large sizes count as new, since beside such a block a granule is
 * nothing. And only while smaller blocks are few, since each would lose half a granule. In a
 * program of many blocks that live while ever more other sizes appear, a block is hardly ever
 * replaced by its like. Its blocks are packed into handles of one chunk.
 *
 * Separate chunks may not be had while the device works, and blocks that were packed earlier still
 * hold theirs. So the last resort begins once a request is out of memory that would have fitted
 * natively. From then on large blocks are the driver's own: their granules are shared with no other
 * large block, and they are never cut for one. Small blocks get segments of a granule, and none
 * lies across its end. The arena's memory goes back as its blocks end. Before a request fails it
 * gets a hole of the arena, or chunks and corners of chunks (divide.h). A small request gets a part
 * of any hole among large blocks. */
#include "allocator/pool/packing.h"

#include "allocator/base/policy.h"

uint64_t packing_noted(uint64_t most)
{
    uint64_t part = most / policy.noted_part;
    return part > policy.noted_least ? part : policy.noted_least;
}

/* Are there few live blocks from 1 MiB to `most` bytes, rounded up to a power of two? Then the loss
 * of half a granule for each is nothing. */
static int are_few(const struct allocator *a, uint64_t most)
{
    uint64_t count = 0;
    for (unsigned bin = stat_bin_of(MIB + 1); bin <= stat_bin_of(most); bin++)
        count += stat_get(&a->stats->histogram_live[bin]);
    return count <= policy.few_blocks;
}

DIRECT int packing_is_exact(const struct allocator *a, uint64_t size)
{
    return size > MIB && !a->life.forgotten && a->arena && a->arena->packing.irregular > 0 &&
           are_few(a, a->arena->packing.noted / 2);
}

int packing_is_varied(const struct allocator *a, uint64_t size)
{
    return size <= policy.varied_most && a->arena->packing.varied > 0 &&
           !are_few(a, policy.varied_most);
}

static uint64_t hash_of(uint64_t size)
{
    return size / BLOCK_GRAIN * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

static struct asked *asked_for(struct arena *arena, uint64_t size)
{
    return &arena->packing.asked[hash_of(size) & (NATIVE_SIZES - 1)];
}

/* The weight of a request in the score `varied`; above 0: blocks outlive their sizes. A size that
 * recurs late speaks against it. A new size, which is noted here, looks at the size that was new
 * policy.varied_sizes sizes earlier: do blocks of it still live? A block that is larger than the
 * request, where segments are not cut, is not counted. */
static int weight_of(struct arena *arena, struct asked *asked, uint64_t size)
{
    if (asked->size == size)
        return (uint32_t)arena->packing.requests - asked->first > policy.varied_late ? -1 : 0;
    uint64_t *oldest = &arena->packing.sizes[arena->packing.news++ % policy.varied_sizes],
             old = *oldest;
    *asked = (struct asked){.size = size, .first = (uint32_t)arena->packing.requests};
    *oldest = size;
    asked = asked_for(arena, old);
    if (!old || asked->size != old)
        return 0;
    return asked->live > 0 ? policy.score_most : -1;
}

static int within(int n, int most)
{
    return n < -most ? -most : n > most ? most : n;
}

void packing_note(struct allocator *a, uint64_t size)
{
    struct arena *arena = a->arena;
    if (!arena)
        return;
    arena->packing.requests++;
    struct asked *asked = asked_for(arena, size);
    int was = arena->packing.irregular > 0, counts = size >= arena->packing.noted;
    arena->packing.irregular =
        within(arena->packing.irregular + (asked->size == size ? -1 : counts), policy.score_most);
    arena->packing.varied = within(arena->packing.varied + weight_of(arena, asked, size),
                                   policy.score_most * policy.score_most);
    if (was != (arena->packing.irregular > 0))
        a->taken = NULL; /* the same request may get another block from here on */
}

DIRECT void packing_count_large(struct arena *arena, uint64_t size, int sign)
{
    struct asked *asked = asked_for(arena, size);
    if (asked->size == size)
        asked->live += sign;
}
