/* What a request gets when memory is short and the driver has none: holes among large blocks, and
 * corners of chunks. Also decides when large blocks become the driver's own (packing.h). */
#include "allocator/allocator.h"
#include "allocator/base/policy.h"
#include "allocator/last_resort.h"

#include "allocator/mapping/claim.h"
#include "allocator/pool/packing.h"
#include "allocator/pool/pool.h"
#include "allocator/state/enter.h"

/* Returns what the live blocks of this device would take if each large one were the driver's own.
 * Small ones may lie among them, and share granules there. It walks all blocks, so it is called
 * only where a request has failed, which has cost far more. */
static uint64_t native_bytes(const struct allocator *a)
{
    uint64_t bytes = stats_current(a->stats, STAT_reserved_bytes, SMALL_POOL);
    for (const struct allocator *other = a->domain->first; other; other = other->next)
        for (const struct segment *segment = other->stats == a->stats ? other->segments : NULL;
             segment; segment = segment->next)
            for (const struct block *block = segment->stat == LARGE_POOL ? segment->first : NULL;
                 block; block = block->next)
                if (block->state == BLOCK_ALLOCATED)
                    bytes += block_size(block) <= MIB ? block_size(block)
                                                      : native_bytes_of(block_requested(block));
    return bytes;
}

static int fits(const struct allocator *a, uint64_t size, uint64_t available)
{
    uint64_t most = stats_current_all(a->stats, STAT_reserved_bytes) + available;
    if (most > a->limit)
        most = a->limit;
    return size <= most && native_bytes(a) + native_bytes_of(size) <= most;
}

int allocator_fits_natively(struct allocator *a, uint64_t bytes, uint64_t available)
{
    domain_lock(a->domain);
    int fit = fits(a, bytes, available);
    domain_unlock(a->domain);
    return fit;
}

static void note_failure(struct allocator *a, uint64_t size)
{
    const struct pool_stat *requests = &a->stats->stat[STAT_allocation];
    uint64_t available = 0, total = 0;
    allocator_call(a);
    int code = a->ops->query_memory(a->device, &available, &total);
    allocator_return(a);
    if (code || a->life.forgotten || !fits(a, size, available))
        return;
    a->growth.as_native = 1;
    stats_set(a->stats, COUNTER_native_since_request,
              1 + requests->allocated[SMALL_POOL] + requests->allocated[LARGE_POOL]);
}

/* Returns how often the driver has given memory and taken it back so far. */
static uint64_t changes(const struct allocator *a)
{
    return stats_get(a->stats, COUNTER_num_device_alloc) +
           stats_get(a->stats, COUNTER_num_device_free);
}

int last_resort_is_cornered(const struct allocator *a)
{
    return a->growth.cornered == 1 + changes(a) && a->mallocs < a->growth.cornered_until;
}

struct block *last_resort_corner(struct allocator *a, uint64_t size)
{
    static const enum pool pools[] = {POOL_SMALL, POOL_LARGE, POOL_MAPPED};
    struct block *block = NULL;
    for (unsigned i = 0; i < 3 && size <= MIB && !block; i++)
        block = pool_take_from(a, pools[i], size);
    if (block && !last_resort_is_cornered(a)) {
        a->growth.cornered = 1 + changes(a);
        a->growth.cornered_until = a->mallocs + policy.pace;
    }
    return block;
}

int last_resort_take(struct allocator *a, uint64_t size, struct block **block)
{
    if (a->life.forgotten || !a->arena)
        return a->ops->out_of_memory;
    if (!a->growth.as_native) {
        note_failure(a, size);
        return a->ops->out_of_memory;
    }
    if (size <= MIB)
        return a->ops->out_of_memory;
    if ((*block = pool_take_from(a, POOL_MAPPED, size)))
        return 0;
    int code = arena_claim_in(a->arena, size, CLAIM_GROW | CLAIM_DIVIDE, block);
    return code <= 0 ? code : a->ops->out_of_memory; /* the driver has said so already */
}
