/* Reusable blocks of a pool, ordered by (size, address): a tree for each sixteenth of a power of two,
 * so that most trees hold a block or none, and a bitmap of those that hold any. What a tree of all
 * of them would answer, and in the worst case as fast: O(log n) expected. */
#ifndef CACHALOT_ALLOCATOR_BASE_SIZE_BINS_H
#define CACHALOT_ALLOCATOR_BASE_SIZE_BINS_H

#include "allocator/base/treap.h"

#define BIN_WORDS 8
#define BINS (BIN_WORDS * 64)

struct bins {
    uint64_t used[BIN_WORDS]; /* by bin: has it any? */
    struct treap bin[BINS];
};

void bins_insert(struct bins *bins, struct treap_node *node);
void bins_remove(struct bins *bins, struct treap_node *node);

/* First node with key >= (size, address), the last of all; or NULL. */
struct treap_node *bins_at_least(const struct bins *bins, uint64_t size, uint64_t address);
struct treap_node *bins_last(const struct bins *bins);

#endif
