/* How long a thread waits for a fence: a request instead of growing, and a free in a crowd. The
 * head of fence.c says for which fences a wait needs a limit. */
#include <limits.h>
#include <stddef.h>

#include "allocator/reuse/fence_wait.h"
#include "allocator/base/policy.h"
#include "allocator/state/record.h"

/* Returns the bytes that may be pending before frees wait. Otherwise many streams that free all the
 * time would each grow the cache by what is under way. CUDA's frees wait each time. */
static uint64_t most_pending(const struct allocator *a)
{
    uint64_t part = stats_current_all(a->stats, STAT_allocated_bytes) / policy.fat_part;
    return part > policy.fat_least ? part : policy.fat_least;
}

int fence_is_fat(const struct allocator *a)
{
    return stats_current_all(a->stats, STAT_active_bytes) -
               stats_current_all(a->stats, STAT_allocated_bytes) >
           most_pending(a);
}

/* Returns how long to wait for `fence` when `spent` of `budget` has passed. A device that is
 * `policy.slack_ns` behind its host stays busy while the host waits for the oldest work. Such a
 * wait costs nothing, growing costs memory. With less slack steps get slower, with more the cache
 * grows (test/gpu/RECORD.md). */
uint64_t fence_patience(const struct allocator *a, const struct fence *fence, uint64_t spent,
                        uint64_t budget)
{
    int own = fence->owner == a->ops->thread_id() && !fence->late;
    int behind = fence_is_fat(a) || a->ops->now_ns() - fence->recorded_ns >= policy.slack_ns;
    if (own && (behind || budget >= OWN_FOREVER))
        return DEVICE_FOREVER;
    if (budget == OWN_FOREVER)
        return 0;
    uint64_t limit = budget == DEVICE_FOREVER ? policy.pressure_wait_ns : budget;
    if (!own && behind && limit < policy.brief_wait_ns)
        limit = policy.brief_wait_ns;
    return spent < limit ? limit - spent : 0;
}

void fence_note_wait(struct allocator *a, uint64_t begin)
{
    uint64_t waited = a->ops->now_ns() - begin;
    stats_count(a->stats, COUNTER_num_fence_waits, 1);
    stats_count(a->stats, COUNTER_fence_wait_ns, waited);
    record_wait(a, waited);
}

/* A crowd ends after `policy.crowd_turns` turns in a row of one thread, once it has lasted long
 * enough. A training step has more turns of one thread between two changes of threads. Whatever
 * comes again after the end of a crowd makes the cache grow. So each crowd lasts twice as long as
 * the one before. */
void fence_note_turn(struct allocator *a, uint64_t thread)
{
    a->crowd.alone = thread == a->crowd.alone_of && !a->crowd.waiting ? a->crowd.alone + 1 : 0;
    a->crowd.alone_of = thread;
    a->crowd.turns++;
    if (a->crowd.is_on && a->crowd.alone >= policy.crowd_turns &&
        a->crowd.turns >= a->crowd.least_turns)
        a->crowd.is_on = 0;
}

void fence_crowd_begins(struct allocator *a)
{
    a->crowd.is_on = 1;
    a->crowd.turns = 0;
    if (!a->crowd.least_turns)
        a->crowd.least_turns = policy.crowd_turns;
    if (a->crowd.least_turns <= UINT_MAX / 2)
        a->crowd.least_turns *= 2;
}

/* What this thread has freed since fence `number`, which it must not run ahead of. */
static _Thread_local struct {
    const struct allocator *of;
    uint64_t number, bytes;
} ahead;

/* Returns the number of the fence that a thread must not run ahead of, after it freed the blocks of
 * `fence`. The threads share what may be pending. Each counts its share in two halves. */
uint64_t fence_not_ahead_of(const struct allocator *a, const struct fence *fence)
{
    uint64_t number = 0, sharers = a->caches.sharers ? a->caches.sharers : 1;
    if (ahead.of != a) {
        ahead.of = a;
        ahead.number = ahead.bytes = 0;
    }
    for (const struct block *block = fence->blocks.first; block; block = block->link)
        ahead.bytes += block_size(block);
    if (ahead.bytes > most_pending(a) / sharers / 2) {
        number = ahead.number;
        ahead.number = fence->number;
        ahead.bytes = 0;
    }
    return number;
}
