#include "allocator/base/treap.h"

#include <stddef.h>

static int before(const struct treap_node *a, uint64_t major, uint64_t minor)
{
    return a->major < major || (a->major == major && a->minor < minor);
}

/* The finaliser of splitmix64, a bijection: neighbouring addresses get unrelated priorities. */
static uint64_t priority(const struct treap_node *node)
{
    uint64_t x = node->minor + node->major * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

DIRECT void treap_insert(struct treap *tree, struct treap_node *node)
{
    struct treap_node **link = &tree->root;
    uint64_t rank = *link ? priority(node) : 0;
    while (*link && priority(*link) >= rank)
        link = before(*link, node->major, node->minor) ? &(*link)->right : &(*link)->left;

    /* The node belongs at this link: split the subtree here into the nodes before and after it. */
    struct treap_node *rest = *link, **left = &node->left, **right = &node->right;
    *link = node;
    while (rest) {
        if (before(rest, node->major, node->minor)) {
            *left = rest;
            left = &rest->right;
            rest = rest->right;
        } else {
            *right = rest;
            right = &rest->left;
            rest = rest->left;
        }
    }
    *left = *right = NULL;
}

DIRECT void treap_remove(struct treap *tree, struct treap_node *node)
{
    struct treap_node **link = &tree->root;
    while (*link != node)
        link = before(*link, node->major, node->minor) ? &(*link)->right : &(*link)->left;

    struct treap_node *left = node->left, *right = node->right;
    while (left && right) {
        if (priority(left) >= priority(right)) {
            *link = left;
            link = &left->right;
            left = left->right;
        } else {
            *link = right;
            link = &right->left;
            right = right->left;
        }
    }
    *link = left ? left : right;
}

struct treap_node *treap_at_least(const struct treap *tree, uint64_t major, uint64_t minor)
{
    struct treap_node *found = NULL;
    for (struct treap_node *node = tree->root; node;)
        if (before(node, major, minor)) {
            node = node->right;
        } else {
            found = node;
            node = node->left;
        }
    return found;
}

struct treap_node *treap_at_most(const struct treap *tree, uint64_t major, uint64_t minor)
{
    struct treap_node *found = NULL;
    for (struct treap_node *node = tree->root; node;)
        if (before(node, major, minor) || (node->major == major && node->minor == minor)) {
            found = node;
            node = node->right;
        } else {
            node = node->left;
        }
    return found;
}

struct treap_node *treap_last(const struct treap *tree)
{
    struct treap_node *node = tree->root;
    while (node && node->right)
        node = node->right;
    return node;
}
