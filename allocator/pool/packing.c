/* In mapped memory blocks share granules with their neighbours, and chunks: that saves more than it
 * costs, until a chunk is held by a corner of a block when there is no other left, and no call of
 * the driver moves that. It cannot be undone then, so it is decided from the first request on: a
 * program whose sizes come again has its blocks packed, and one whose sizes do not shares no chunk
 * among them (grow_mapped). Large sizes count as new: beside these a granule is nothing; and only as
 * long as few blocks are smaller, which lose half of theirs. A program of many blocks that live while
 * ever more other sizes are new hardly replaces one by its like: it has them packed into small chunks.
 *
 * That may fail while the device works, and what was packed before holds its chunks. So once a
 * request was out of memory for which natively there had been room, large blocks are the driver's
 * own, in granules that they share with no large one, and never cut for one, and small ones lie in
 * segments of a granule, across no end of one; what the arena holds goes back as its blocks end.
 * Before a request fails it gets a hole there, or chunks, and corners of chunks (divide.h); a
 * small one a part of any hole among large blocks. */
#include "allocator/pool/packing.h"

#include "allocator/base/policy.h"

uint64_t packing_noted(uint64_t most)
{
    uint64_t part = most / policy.noted_part;
    return part > policy.noted_least ? part : policy.noted_least;
}

/* Are there few blocks above a MiB and up to `most` bytes, rounded up to a power of two? Half a
 * granule of each is nothing, then. */
static int are_few(const struct allocator *a, uint64_t most)
{
    uint64_t count = 0;
    for (unsigned bin = stat_bin_of(MIB + 1); bin <= stat_bin_of(most); bin++)
        count += stat_get(&a->stats->histogram_live[bin]);
    return count <= policy.few_blocks ||
           count * MIB <=
               stats_current(a->stats, STAT_active_bytes, LARGE_POOL) / policy.few_lost_part;
}

int packing_is_exact(const struct allocator *a, uint64_t size)
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

/* `asked` forgets sizes, so that some are new again and again; here of thousands a few are taken for one another. */
static void note_distinct(struct arena *arena, uint64_t size)
{
    uint64_t place = hash_of(size) & (NATIVE_SEEN - 1), bit = UINT64_C(1) << place % 64;
    arena->packing.distinct += !(arena->packing.seen[place / 64] & bit);
    arena->packing.seen[place / 64] |= bit;
}

/* What a request says of whether blocks outlive their sizes; above 0: they do. Of a new size (as which it is noted
 * here): do blocks of the one live that was new some time ago? Of another: does it come again? The block may be
 * larger than was asked for, where segments are not cut; then it is not counted. */
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
    return asked->live > 0 ? policy.varied_outlived : -1;
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
    note_distinct(arena, size);
    struct asked *asked = asked_for(arena, size);
    int was = arena->packing.irregular > 0, counts = size >= arena->packing.noted;
    arena->packing.irregular =
        within(arena->packing.irregular + (asked->size == size ? -policy.irregular_again : counts),
               policy.irregular_most);
    arena->packing.varied = within(arena->packing.varied + weight_of(arena, asked, size),
                                   policy.irregular_most * policy.varied_outlived);
    if (was != (arena->packing.irregular > 0))
        a->taken = NULL; /* requests are served otherwise from here on */
}

void packing_count_large(struct arena *arena, uint64_t size, int sign)
{
    struct asked *asked = asked_for(arena, size);
    if (asked->size == size)
        asked->live += sign;
}
