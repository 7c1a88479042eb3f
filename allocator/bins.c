#include "allocator/bins.h"

#include <stddef.h>

/* The two bits below the highest one, and that one's place. */
static unsigned bin_of(uint64_t size)
{
    unsigned shift = 61 - (unsigned)__builtin_clzll(size | 4);
    return shift * 4 + (unsigned)(size >> shift & 3);
}

void bins_insert(struct bins *bins, struct tree_node *node)
{
    unsigned bin = bin_of(node->major);
    bins->used[bin / 64] |= (uint64_t)1 << bin % 64;
    tree_insert(&bins->bin[bin], node);
}

void bins_remove(struct bins *bins, struct tree_node *node)
{
    unsigned bin = bin_of(node->major);
    tree_remove(&bins->bin[bin], node);
    if (!bins->bin[bin].root)
        bins->used[bin / 64] &= ~((uint64_t)1 << bin % 64);
}

struct tree_node *bins_at_least(const struct bins *bins, uint64_t size, uint64_t address)
{
    unsigned bin = bin_of(size);
    struct tree_node *node = tree_at_least(&bins->bin[bin], size, address);
    uint64_t above = ~(uint64_t)1 << bin % 64; /* the bins of its word that are above it */
    for (unsigned word = bin / 64; !node && word < BIN_WORDS; word++, above = UINT64_MAX)
        if (bins->used[word] & above)
            node = tree_at_least(
                &bins->bin[word * 64 + (unsigned)__builtin_ctzll(bins->used[word] & above)], 0, 0);
    return node;
}

struct tree_node *bins_last(const struct bins *bins)
{
    for (unsigned word = BIN_WORDS; word-- > 0;)
        if (bins->used[word])
            return tree_last(
                &bins->bin[word * 64 + 63 - (unsigned)__builtin_clzll(bins->used[word])]);
    return NULL;
}
