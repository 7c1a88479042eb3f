/* A tree of maxima over an array of numbers, one for each place. It finds the first place that has
 * at least as much as is asked for, or the best of policy.fit_slots places from there on. The first
 * place is found, and a number is set, in O(log n) of the places that were ever used. A node is a
 * cache line of 16 numbers. A binary tree has four times the levels, and a mispredicted branch on
 * each level costs most. The domain's lock is held. */
#ifndef CACHALOT_ALLOCATOR_BASE_MAX_TREE_H
#define CACHALOT_ALLOCATOR_BASE_MAX_TREE_H

#include <stddef.h>
#include <stdint.h>

#define MAX_TREE_NODE 16
#define MAX_TREE_LEVELS 8 /* 16^8 places */

struct max_tree {
    /* [0]: the number of each place; [n + 1]: the maximum of each node of [n] */
    uint32_t *level[MAX_TREE_LEVELS];
    uint32_t places;
    unsigned top; /* one node of this level covers all places that ever had more than 0 */
};

/* Makes a tree of `places` places, at least one, in `memory`, which is zero and in whole cache
 * lines. NULL: makes none yet. Returns how many bytes of `memory` the tree uses. */
size_t max_tree_begin(struct max_tree *fit, void *memory, uint32_t places);

/* The number of a place. */
static inline uint32_t max_tree_of(const struct max_tree *fit, uint32_t place)
{
    return fit->level[0][place];
}

/* The largest number of all places. */
uint32_t max_tree_most(const struct max_tree *fit);

/* Sets the number of a place. */
void max_tree_set(struct max_tree *fit, uint32_t place, uint32_t has);

/* find: the first place with at least `least`; UINT32_MAX: there is none. best: with `first` from
 * find, looks at policy.fit_slots places from the node of `first` on. Of those with at least
 * `least` it returns the one with the smallest number; of equal ones the lowest. */
uint32_t max_tree_find(const struct max_tree *fit, uint32_t least);
uint32_t max_tree_best(const struct max_tree *fit, uint32_t first, uint32_t least);

#endif
