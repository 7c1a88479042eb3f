#include "allocator/base/size_bins.h"

#include <stddef.h>

#include "allocator/base/options.h"
#include "allocator/base/treap.h"

/* The bin of a size: the position of the highest bit of its grains, and the four bits below that.
 * The last bin has all sizes from 16 TiB on. */
static unsigned bin_of(uint64_t size)
{
    uint64_t grains = size / BLOCK_GRAIN;
    unsigned shift = 59 - (unsigned)__builtin_clzll(grains | 16);
    unsigned bin = shift * 16 + (unsigned)(grains >> shift);
    return bin < BINS ? bin : BINS - 1;
}

DIRECT void bins_insert(struct bins *bins, struct treap_node *node)
{
    unsigned bin = bin_of(node->major);
    bins->used[bin / 64] |= (uint64_t)1 << bin % 64;
    treap_insert(&bins->bin[bin], node);
}

DIRECT void bins_remove(struct bins *bins, struct treap_node *node)
{
    unsigned bin = bin_of(node->major);
    treap_remove(&bins->bin[bin], node);
    if (!bins->bin[bin].root)
        bins->used[bin / 64] &= ~((uint64_t)1 << bin % 64);
}

/* The next bin above `bin` that holds a node; BINS: there is none. */
static inline unsigned used_above(const struct bins *bins, unsigned bin)
{
    uint64_t above = ~(uint64_t)1 << bin % 64; /* bits of the same word above `bin` */
    for (unsigned word = bin / 64; word < BIN_WORDS; word++, above = UINT64_MAX)
        if (bins->used[word] & above)
            return word * 64 + (unsigned)__builtin_ctzll(bins->used[word] & above);
    return BINS;
}

struct treap_node *bins_at_least(const struct bins *bins, uint64_t size, uint64_t address)
{
    unsigned bin = bin_of(size);
    struct treap_node *node = treap_at_least(&bins->bin[bin], size, address);
    if (!node && (bin = used_above(bins, bin)) < BINS)
        node = treap_first(bins->bin[bin].root);
    return node;
}

DIRECT struct treap_node *bins_last(const struct bins *bins)
{
    for (unsigned word = BIN_WORDS; word-- > 0;)
        if (bins->used[word])
            return treap_last(
                &bins->bin[word * 64 + 63 - (unsigned)__builtin_clzll(bins->used[word])]);
    return NULL;
}
