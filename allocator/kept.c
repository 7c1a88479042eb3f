/* When a freed block need not go through its pool (only the lock's holder asks).
 *
 * A request of S bytes took block K from its pool, as the front of a reusable block M or all of it,
 * and no pool has changed since (`taken`). Then giving K back makes M again, and the next request
 * of S bytes finds what the one before it found: K. So K is counted as reusable, but neither
 * merged nor in the pool, until allocate() takes it again, or anybody takes the lock for anything
 * else (domain_lock): then it is put, and all is as if it had been there from the beginning.
 *
 * What changes which block a request would get clears `taken`: pool_insert, pool_remove, and those
 * who change a block's pool or the rules (segment_grow, domain_mark).
 */
#include "allocator/kept.h"

#include <stddef.h>

#include "allocator/arena.h"
#include "allocator/pool.h"

/* The rest of M, which K will be merged with. Before it there is nothing reusable: M began with K.
 */
static struct block *rest_of(const struct block *block)
{
    struct block *next = block->next;
    return next && next->state == BLOCK_REUSABLE && next->pinned == block->pinned ? next : NULL;
}

/* Is M only a part of its segment? */
static int is_split(const struct block *block, const struct block *rest)
{
    return block->previous || (rest ? rest : block)->next;
}

int kept_keep(struct block *block)
{
    const struct segment *segment = block->segment;
    struct allocator *a = segment->allocator;
    struct kept *kept = &a->domain->kept;
    if (a->taken != block)
        return 0;
    const struct block *rest = rest_of(block);
    uint64_t more = rest ? block_size(rest) : 0, size = block_size(block) + more;
    block_leaves_use(block);
    block->state = BLOCK_CLAIMED;
    *kept = (struct kept){.block = block,
                          .size = a->taken_size,
                          .largest = stats_get(a->stats, COUNTER_largest_allocatable_bytes)};
    if (rest)
        pool_count_out(segment, more, 1);
    pool_count_in(segment, size, is_split(block, rest));
    return 1;
}

struct block *kept_take(struct domain *domain)
{
    struct kept *kept = &domain->kept;
    struct block *block = kept->block;
    const struct block *rest = rest_of(block);
    uint64_t more = rest ? block_size(rest) : 0;
    pool_count_out(block->segment, block_size(block) + more, is_split(block, rest));
    if (rest)
        pool_count_in(block->segment, more, 1);
    stats_set(block->segment->allocator->stats, COUNTER_largest_allocatable_bytes, kept->largest);
    block->state = BLOCK_PENDING;
    kept->block = NULL;
    return block;
}

void kept_put(struct domain *domain)
{
    struct block *block = domain->kept.block;
    struct allocator *a = block->segment->allocator;
    uint64_t begin = block_address(block), end = begin + block_size(block);
    domain->kept.block = NULL;
    stats_begin(a->stats);
    if (rest_of(block)) {
        pool_take_out(a, block->next);
        block_join(block, block->next);
    }
    pool_put_in(a, block);
    if (a->arena && block->segment->arena)
        arena_go_home(a->arena, begin, end);
    stats_end(a->stats);
}
