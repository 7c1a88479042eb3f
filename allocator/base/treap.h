/* An ordered set of nodes by (major, minor): a treap whose priorities are a hash of the key, so
 * that the same set has the same shape whatever the order of inserts. All operations are O(log n)
 * expected.
 *
 * Pools order reusable blocks by (size, address); the domain orders segments by (0, address). */
#ifndef CACHALOT_ALLOCATOR_BASE_TREAP_H
#define CACHALOT_ALLOCATOR_BASE_TREAP_H

#include <stdint.h>

struct tree_node {
    uint64_t major, minor;
    /* Last, since blocks in no tree use them otherwise (block_layout.h). */
    struct tree_node *left, *right;
};

struct tree {
    struct tree_node *root;
};

void tree_insert(struct tree *tree, struct tree_node *node);
void tree_remove(struct tree *tree, struct tree_node *node);

/* First node with key >= (major, minor), last node with key <= it, the last of all; or NULL. */
struct tree_node *tree_at_least(const struct tree *tree, uint64_t major, uint64_t minor);
struct tree_node *tree_at_most(const struct tree *tree, uint64_t major, uint64_t minor);
struct tree_node *tree_last(const struct tree *tree);

/* The first at or below `node`; NULL of NULL. */
static inline struct tree_node *tree_first(struct tree_node *node)
{
    while (node && node->left)
        node = node->left;
    return node;
}

#endif
