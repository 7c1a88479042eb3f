/* The first of many places that has as much as is asked for, or the best of a thousand from there on: a tree of
 * maxima over an array, so that the first is found, and what a place has is changed, in O(log n) of the places that
 * were ever used. A node is a line of sixteen numbers: a fourth of the levels that twos have, and a wrong guess of
 * the processor's at each of those costs most. */
#ifndef CACHALOT_ALLOCATOR_BASE_MAX_TREE_H
#define CACHALOT_ALLOCATOR_BASE_MAX_TREE_H

#include <stddef.h>
#include <stdint.h>

#define FIRST_FIT_NODE 16
#define FIRST_FIT_LEVELS 8 /* 16^8 places */

struct max_tree {
    /* [0]: what each place has; [n + 1]: the most of each node of [n] */
    uint32_t *level[FIRST_FIT_LEVELS];
    uint32_t places;
    unsigned top; /* of this level one node has all below it that ever had anything */
};

/* For so many places, at least one, in `memory`: zeroes, of whole lines; NULL: in none yet. Returns how many bytes
 * of it are used. */
size_t max_tree_begin(struct max_tree *fit, void *memory, uint32_t places);

static inline uint32_t max_tree_of(const struct max_tree *fit, uint32_t place)
{
    return fit->level[0][place];
}

/* The most that any place has. */
uint32_t max_tree_most(const struct max_tree *fit);

void max_tree_set(struct max_tree *fit, uint32_t place, uint32_t has);

/* UINT32_MAX: there is none. best: of the policy.fit_slots places from the node of `first` on, which is the first, the
 * one that has least; of two as good the lower. */
uint32_t max_tree_find(const struct max_tree *fit, uint32_t least);
uint32_t max_tree_best(const struct max_tree *fit, uint32_t first, uint32_t least);

#endif
