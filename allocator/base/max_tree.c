#include "allocator/base/max_tree.h"

#include "allocator/base/policy.h"

size_t max_tree_begin(struct max_tree *fit, void *memory, uint32_t places)
{
    size_t numbers = places, used = 0;
    *fit = (struct max_tree){.places = places};
    for (unsigned level = 0; level == 0 || numbers > 1; level++) {
        size_t nodes = (numbers + MAX_TREE_NODE - 1) / MAX_TREE_NODE;
        fit->level[level] = memory ? (uint32_t *)memory + used : NULL;
        used += nodes * MAX_TREE_NODE;
        numbers = nodes;
    }
    return used * sizeof(uint32_t);
}

typedef uint32_t four __attribute__((vector_size(16), may_alias));

static four larger(four a, four b)
{
    four is = (four)(a > b);
    return (a & is) | (b & ~is);
}

static four smaller(four a, four b)
{
    four is = (four)(a < b);
    return (a & is) | (b & ~is);
}

static uint32_t most_of(const uint32_t *node)
{
    const four *in = (const four *)node;
    four most = larger(larger(in[0], in[1]), larger(in[2], in[3]));
    uint32_t a = most[0] > most[1] ? most[0] : most[1], b = most[2] > most[3] ? most[2] : most[3];
    return a > b ? a : b;
}

uint32_t max_tree_most(const struct max_tree *fit)
{
    return most_of(fit->level[fit->top]);
}

void max_tree_set(struct max_tree *fit, uint32_t place, uint32_t has)
{
    uint32_t had = fit->level[0][place];
    for (uint64_t node = place / MAX_TREE_NODE; node >> 4 * fit->top; fit->top++) /* 16^top */
        fit->level[fit->top + 1][0] = most_of(fit->level[fit->top]);
    fit->level[0][place] = has;
    for (unsigned level = 0; level < fit->top; level++) {
        place /= MAX_TREE_NODE;
        uint32_t *most = &fit->level[level + 1][place];
        if (has < had) {
            if (*most == had)
                has = most_of(fit->level[level] + place * (size_t)MAX_TREE_NODE);
            if (*most != had || has == had)
                return;
        } else if (*most >= has) {
            return;
        }
        *most = has;
    }
}

uint32_t max_tree_find(const struct max_tree *fit, uint32_t least)
{
    uint32_t at = 0;
    if (max_tree_most(fit) < least)
        return UINT32_MAX;
    for (unsigned level = fit->top + 1; level-- > 0;) {
        const uint32_t *node = fit->level[level] + (size_t)(at *= MAX_TREE_NODE);
        uint32_t first = MAX_TREE_NODE - 1;
        for (uint32_t i = first; i-- > 0;) /* no branch: it would be mispredicted */
            first = node[i] >= least ? i : first;
        at += first;
    }
    return at;
}

/* The smallest excess over `least` in a node. A number below `least` wraps around to a large
 * one. */
static uint32_t least_over(const uint32_t *node, uint32_t least)
{
    const four *in = (const four *)node;
    four over =
        smaller(smaller(in[0] - least, in[1] - least), smaller(in[2] - least, in[3] - least));
    uint32_t a = over[0] < over[1] ? over[0] : over[1], b = over[2] < over[3] ? over[2] : over[3];
    return a < b ? a : b;
}

uint32_t max_tree_best(const struct max_tree *fit, uint32_t first, uint32_t least)
{
    uint32_t at = first - first % MAX_TREE_NODE, best = at;
    uint32_t end = fit->places - at < policy.fit_slots ? fit->places : at + policy.fit_slots;
    uint32_t fewest = least_over(fit->level[0] + at, least);
    /* Most nodes have no place with enough, as their maxima say. Level 0 alone has no maxima. */
    for (at += MAX_TREE_NODE; fit->top && at < end && fewest; at += MAX_TREE_NODE) {
        if (fit->level[1][at / MAX_TREE_NODE] < least)
            continue;
        uint32_t over = least_over(fit->level[0] + at, least);
        best = over < fewest ? at : best;
        fewest = over < fewest ? over : fewest;
    }
    while (fit->level[0][best] - least != fewest)
        best++;
    return best;
}
