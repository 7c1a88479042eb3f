/* A treap: a set of nodes ordered by (major, minor). Priorities are a hash of the key, so the same
 * set has the same shape in any order of inserts. All operations are O(log n) expected. The caller
 * holds a lock.
 *
 * Pools order reusable blocks by (size, address); the domain orders segments by (0, address). */
#ifndef CACHALOT_ALLOCATOR_BASE_TREAP_H
#define CACHALOT_ALLOCATOR_BASE_TREAP_H

#include <stdint.h>

#include "stats/os/direct.h"

struct treap_node {
    uint64_t major, minor;
    /* Last: a block in no treap uses `right` for another field (block_layout.h). */
    struct treap_node *left, *right;
};

struct treap {
    struct treap_node *root;
};

/* insert: no node of the treap has the same key. remove: the node is in the treap. */
DIRECT void treap_insert(struct treap *tree, struct treap_node *node);
DIRECT void treap_remove(struct treap *tree, struct treap_node *node);

/* The first node with key >= (major, minor); the last with key <= it; the last of all. NULL: there
 * is none. */
struct treap_node *treap_at_least(const struct treap *tree, uint64_t major, uint64_t minor);
struct treap_node *treap_at_most(const struct treap *tree, uint64_t major, uint64_t minor);
struct treap_node *treap_last(const struct treap *tree);

/* The first node of the subtree of `node`; NULL if `node` is NULL. */
static inline struct treap_node *treap_first(struct treap_node *node)
{
    while (node && node->left)
        node = node->left;
    return node;
}

#endif
