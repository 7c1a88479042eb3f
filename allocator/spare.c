#include "allocator/spare.h"

#include <stddef.h>

#define TRIES 100
#define BUSY ((struct block *)1) /* in a list's place: a thread holds it */

/* The list is this thread's until it is put back; BUSY: it is another's. Nobody waits for ever: the
 * other may be held up, and need this thread to go on. */
static struct block *hold(struct block *_Atomic *list)
{
    for (int i = 0; i < TRIES; i++) {
        struct block *first = atomic_load_explicit(list, memory_order_relaxed);
        if (first != BUSY && atomic_compare_exchange_weak_explicit(
                                 list, &first, BUSY, memory_order_acquire, memory_order_relaxed))
            return first;
    }
    return BUSY;
}

static void put_back(struct block *_Atomic *list, struct block *first)
{
    atomic_store_explicit(list, first, memory_order_release);
}

static uint64_t weight(uint64_t size, uint64_t count)
{
    return (size < SPARE_LEAST ? SPARE_LEAST : size) * count;
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

int spare_put(struct allocator *a, struct block *first, uint64_t count)
{
    uint64_t size = block_size(first);
    unsigned step = step_of(size);
    struct block *list = hold(&a->batches[step]);
    if (list == BUSY)
        return -1;
    first->requested = count;
    first->node.left = list ? &list->node : NULL;
    if (!list)
        atomic_fetch_or_explicit(&a->spare_used[step / 64], (uint64_t)1 << step % 64,
                                 memory_order_relaxed);
    atomic_fetch_add_explicit(&a->spare_weight, weight(size, count), memory_order_relaxed);
    put_back(&a->batches[step], first);
    return 0;
}

int spare_give(struct allocator *a, struct block *first, uint64_t count)
{
    uint64_t more = weight(block_size(first), count);
    return atomic_load_explicit(&a->spare_weight, memory_order_relaxed) + more >
                   atomic_load_explicit(&a->spare_most, memory_order_relaxed)
               ? -1
               : spare_put(a, first, count);
}

struct block *spare_take(struct allocator *a, uint64_t size)
{
    unsigned step = step_of(size);
    struct block *first = spare_any(a, size) ? hold(&a->batches[step]) : BUSY;
    if (first == BUSY)
        return NULL;
    if (!first) {
        put_back(&a->batches[step], NULL);
        return NULL;
    }
    struct block *next = spare_next(first);
    if (!next)
        atomic_fetch_and_explicit(&a->spare_used[step / 64], ~((uint64_t)1 << step % 64),
                                  memory_order_relaxed);
    atomic_fetch_sub_explicit(&a->spare_weight, weight(size, first->requested),
                              memory_order_relaxed);
    put_back(&a->batches[step], next);
    return first;
}
