#include "allocator/thread_cache/transfer.h"

#include <stddef.h>

#include "allocator/base/policy.h"

#define BUSY UINT64_MAX /* in place of a list's count: a thread holds it */

/* Takes hold of the list until it is put back. Returns its count, or BUSY if another thread
 * holds it. No thread waits without limit: the other one may be held up, and need this thread to
 * go on. */
static uint64_t hold(struct transfer_list *list)
{
    for (int i = 0; i < policy.transfer_tries; i++) {
        uint64_t count = atomic_load_explicit(&list->count, memory_order_relaxed);
        if (count != BUSY &&
            atomic_compare_exchange_weak_explicit(&list->count, &count, BUSY, memory_order_acquire,
                                                  memory_order_relaxed))
            return count;
    }
    return BUSY;
}

static void put_back(struct transfer_list *list, uint64_t count)
{
    atomic_store_explicit(&list->count, count, memory_order_release);
}

static int64_t weight(uint64_t size, uint64_t count)
{
    return (int64_t)((size < policy.transfer_least ? policy.transfer_least : size) * count);
}

/* Adds to the bytes in the transfer cache. `alone`: what the calling thread's cache has not told
 * yet; NULL: tells at once. */
static void weigh(struct allocator *a, int64_t *alone, int64_t more)
{
    int64_t sum = alone ? *alone + more : more;
    int tell = !alone || sum >= policy.transfer_untold || sum <= -policy.transfer_untold;
    if (tell)
        atomic_fetch_add_explicit(&a->shared.transfer_weight, sum, memory_order_relaxed);
    if (alone)
        *alone = tell ? 0 : sum;
}

/* Sets the bit of a list. Only the holder of the list changes it. */
static void use(struct allocator *a, unsigned step)
{
    if (!step_is_used(a->shared.transfer_used, step))
        atomic_fetch_or_explicit(&a->shared.transfer_used[step / 64], (uint64_t)1 << step % 64,
                                 memory_order_relaxed);
}

int step_before(const _Atomic uint64_t *used, unsigned step)
{
    uint64_t mask = ((uint64_t)1 << step % 64) - 1;
    for (int word = (int)(step / 64); word >= 0; word--, mask = UINT64_MAX) {
        uint64_t bits = mask ? atomic_load_explicit(&used[word], memory_order_relaxed) & mask : 0;
        if (bits)
            return word * 64 + 63 - __builtin_clzll(bits);
    }
    return -1;
}

int transfer_put(struct allocator *a, int64_t *alone, struct block *first, uint64_t blocks)
{
    uint64_t size = block_small_size(first);
    unsigned step = step_of(size);
    struct transfer_list *list = &a->shared.transfer[step];
    first->requested = (uint32_t)blocks;
    first->node.left = NULL;
    uint64_t count = hold(list);
    if (count == BUSY)
        return -1;
    if (count == SPARE_PLACES)
        first->node.left = &list->batch[--count]->node;
    list->batch[count] = first;
    use(a, step);
    put_back(list, count + 1);
    weigh(a, alone, weight(size, blocks));
    return 0;
}

int transfer_give(struct allocator *a, int64_t *alone, struct block *first, uint64_t blocks)
{
    int64_t more = *alone + weight(block_small_size(first), blocks);
    return atomic_load_explicit(&a->shared.transfer_weight, memory_order_relaxed) + more >
                   atomic_load_explicit(&a->shared.transfer_most, memory_order_relaxed)
               ? -1
               : transfer_put(a, alone, first, blocks);
}

struct block *transfer_take(struct allocator *a, int64_t *alone, uint64_t size)
{
    struct transfer_list *list = &a->shared.transfer[step_of(size)];
    uint64_t count = transfer_any(a, size) ? hold(list) : BUSY;
    struct block *first = NULL;
    if (count == BUSY)
        return NULL;
    list->asked = 1;
    if (count) {
        first = list->batch[--count];
        if (count == SPARE_PLACES - 1 && (list->batch[count] = transfer_next(first)))
            count++;
    }
    put_back(list, count);
    if (first)
        weigh(a, alone, -weight(size, first->requested));
    return first;
}

int transfer_is_asked(struct allocator *a, unsigned step)
{
    struct transfer_list *list = &a->shared.transfer[step];
    uint64_t count = hold(list);
    if (count == BUSY)
        return 1;
    int asked = list->asked;
    list->asked = 0;
    if (!count)
        atomic_fetch_and_explicit(&a->shared.transfer_used[step / 64], ~((uint64_t)1 << step % 64),
                                  memory_order_relaxed);
    put_back(list, count);
    return asked;
}
