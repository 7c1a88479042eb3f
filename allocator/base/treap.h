/* An ordered set of nodes by (major, minor): a treap whose priorities are a hash of the key, so
 * that the same set has the same shape whatever the order of inserts. All operations are O(log n)
 * expected.
 *
 * Pools order reusable blocks by (size, address); the domain orders segments by (0, address). */
#ifndef CACHALOT_ALLOCATOR_BASE_TREAP_H
#define CACHALOT_ALLOCATOR_BASE_TREAP_H

#include <stdint.h>

struct treap_node {
    uint64_t major, minor;
    /* Last, since blocks in no tree use them otherwise (block_layout.h). */
    struct treap_node *left, *right;
};

struct treap {
    struct treap_node *root;
};

void treap_insert(struct treap *tree, struct treap_node *node);
void treap_remove(struct treap *tree, struct treap_node *node);

/* First node with key >= (major, minor), last node with key <= it, the last of all; or NULL. */
struct treap_node *treap_at_least(const struct treap *tree, uint64_t major, uint64_t minor);
struct treap_node *treap_at_most(const struct treap *tree, uint64_t major, uint64_t minor);
struct treap_node *treap_last(const struct treap *tree);

/* The first at or below `node`; NULL of NULL. */
static inline struct treap_node *treap_first(struct treap_node *node)
{
    while (node && node->left)
        node = node->left;
    return node;
}

#endif
