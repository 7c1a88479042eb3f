/* How long is a fence waited for? By a request, instead of growing; and by a free, where many threads
 * free. For whose work never without a limit: head of fence.c. */
#include <stddef.h>

#include "allocator/fence.h"
#include "allocator/pool.h"
#include "allocator/record.h"

#define FOREIGN_PATIENCE_NS UINT64_C(2000000)

/* A device that is this far behind its host keeps busy while the host waits for the oldest of what
 * it has still to do: such a wait costs nothing, growing costs memory. Measured on an H200
 * (test/gpu/RECORD.md): below it steps get slower, above it the cache gets fat. */
#define SLACK_NS UINT64_C(300000)

/* Sooner than that when a quarter as much as is in use waits for fences: many streams that free all
 * the time would each grow the cache by what is under way. Natively each free waits. */
#define FAT_PART 4
#define FAT_LEAST (32 * MIB)

int fence_is_fat(const struct allocator *a)
{
    uint64_t allocated = stats_current_all(a->stats, STAT_allocated_bytes);
    uint64_t pending = stats_current_all(a->stats, STAT_active_bytes) - allocated;
    return pending > FAT_LEAST && pending > allocated / FAT_PART;
}

/* How long to wait for `fence` when `spent` of `budget` is gone. */
static uint64_t patience(const struct allocator *a, const struct fence *fence, uint64_t spent,
                         uint64_t budget)
{
    int own = fence->owner == a->ops->thread_id() && !fence->late;
    int behind = fence_is_fat(a) || a->ops->now_ns() - fence->recorded_ns >= SLACK_NS;
    if (own && (behind || budget == DEVICE_FOREVER))
        return DEVICE_FOREVER;
    uint64_t limit = budget == DEVICE_FOREVER ? PRESSURE_WAIT_NS : budget;
    if (!own && behind && limit < FOREIGN_PATIENCE_NS)
        limit = FOREIGN_PATIENCE_NS;
    return spent < limit ? limit - spent : 0;
}

static void note_wait(struct allocator *a, uint64_t begin)
{
    uint64_t waited = a->ops->now_ns() - begin;
    stats_count(a->stats, COUNTER_num_fence_waits, 1);
    stats_count(a->stats, COUNTER_fence_wait_ns, waited);
    record_wait(a, waited);
}

struct block *fence_wait_for(struct allocator *a, uint64_t size, uint64_t budget_ns)
{
    if (!a->pending)
        return NULL;
    uint64_t begin = a->ops->now_ns(), last = a->fence_number, timeout;
    struct block *block = NULL;
    if (a->pending->owner != a->ops->thread_id() && fence_is_fat(a))
        a->crowded = 1;
    while (!block && a->pending && a->pending->number <= last &&
           (timeout = patience(a, a->pending, a->ops->now_ns() - begin, budget_ns)) &&
           fence_ask(a, a->pending, timeout) == 0)
        block = pool_take(a, size);
    note_wait(a, begin);
    return block;
}

/* Where threads free faster than the device gets on, a request finds nothing and can wait for the
 * others' fences only so long: the cache would grow with each. So there a free waits: for the last
 * one of its thread, else whoever is awake runs ahead and all others wait behind its stream; and as
 * long as much waits, for all before it. Natively it would for both. */
int fence_wait_in_line(struct allocator *a, const struct fence *fence)
{
    static _Thread_local struct {
        const struct allocator *of;
        uint64_t owner, number;
    } last;
    uint64_t mine = last.of == a && last.owner == fence->owner ? last.number : 0;
    uint64_t begin = a->ops->now_ns(), before = fence->covers;
    int code = 0, waits = 0;
    last.of = a;
    last.owner = fence->owner;
    last.number = fence->number;
    for (; code == 0 && a->pending && a->pending->number <= before &&
           (a->pending->number <= mine || fence_is_fat(a));
         waits = 1)
        code = fence_ask(a, a->pending, DEVICE_FOREVER);
    if (waits)
        note_wait(a, begin);
    return code > 0 && code == a->error ? code : 0; /* else of our call alone, and it has freed */
}
