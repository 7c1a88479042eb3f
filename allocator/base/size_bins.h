/* Size bins: the reusable blocks of a pool, ordered by (size, address). Each sixteenth of a power
 * of two has a treap, so most treaps hold one block or none. A bitmap names the treaps that hold
 * any. The answers are those of one treap of all blocks, and the worst case is as fast: O(log n)
 * expected. The domain's lock is held. */
#ifndef CACHALOT_ALLOCATOR_BASE_SIZE_BINS_H
#define CACHALOT_ALLOCATOR_BASE_SIZE_BINS_H

#include "allocator/base/treap.h"
#include "stats/os/direct.h"

#define BIN_WORDS 8
#define BINS (BIN_WORDS * 64)

struct bins {
    uint64_t used[BIN_WORDS]; /* a bit for each bin: it holds a node */
    struct treap bin[BINS];
};

/* Insert or remove a node whose key is (size in bytes, address). remove: it is in the bins. */
DIRECT void bins_insert(struct bins *bins, struct treap_node *node);
DIRECT void bins_remove(struct bins *bins, struct treap_node *node);

/* at_least: the first node with key >= (size, address). last: the last node. NULL: there is
 * none. */
struct treap_node *bins_at_least(const struct bins *bins, uint64_t size, uint64_t address);
DIRECT struct treap_node *bins_last(const struct bins *bins);

#endif
