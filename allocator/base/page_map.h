/* A map from addresses to nodes by page. Nodes belong to the caller, which holds a lock, except for
 * page_map_glance.
 *
 * A page is 2 MiB of addresses. Its cells are a table of its own, as large as its nodes need. A node
 * mostly has the first cell that a search looks at, else one of 15 beside it. The cell tells its
 * address, so a search reads no node but the wanted one.
 *
 * At most half of the cells are in use, except in the largest table. */
#ifndef CACHALOT_ALLOCATOR_BASE_PAGE_MAP_H
#define CACHALOT_ALLOCATOR_BASE_PAGE_MAP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/metadata.h"

/* The memory of a node must stay a node for ever (slab.h), whatever it is used for next. */
struct page_node {
    _Atomic uint64_t key; /* address, and low bits of the caller's; 0: in no map */
};

enum {
    PAGE_GRAIN_BITS = 9, /* addresses in the map are multiples of 512 */
    PAGE_BITS = 21,
    PAGE_INDEX_BITS = PAGE_BITS - PAGE_GRAIN_BITS,
    PAGE_GROUP_BITS = 32,
    PAGE_ADDRESS_BITS = 48, /* of addresses in the map, and of the host's */
    PAGE_NEAR = 16          /* cells of two cache lines side by side, which are fetched together */
};
#define PAGE_GRAINS (1u << PAGE_INDEX_BITS)
#define PAGE_GROUP_PAGES (1u << (PAGE_GROUP_BITS - PAGE_BITS))
#define PAGE_GROUPS (1u << (PAGE_ADDRESS_BITS - PAGE_GROUP_BITS))
#define PAGE_SIZES (PAGE_INDEX_BITS + 1)

/* By page: the address of its cells, which is a multiple of METADATA_ALIGNMENT, and in the low bits
 * by how many bits fewer than PAGE_INDEX_BITS number its cells; 0: no cells. */
struct page_group {
    _Atomic uintptr_t page[PAGE_GROUP_PAGES];
    uint16_t used[PAGE_GROUP_PAGES]; /* how many cells have a node */
};

struct page_map {
    _Alignas(64) struct page_group *_Atomic *group; /* by the upper bits of an address */
    uint64_t low;              /* low bits of keys that the map ignores: the caller's */
    struct metadata *metadata; /* memory for groups and cells (metadata_take) */
    _Atomic uint64_t
        *unused[PAGE_SIZES]; /* tables that pages have outgrown, by the low bits of a page */
};

/* Makes an empty map. Returns 0, or -1 when the host is out of memory. */
int page_map_begin(struct page_map *map, struct metadata *metadata);

/* Adds a node, whose key is set and not in the map. Returns 0, or -1: the host has no memory, or the
 * address has too many bits, or is no multiple of 512. */
int page_map_insert(struct page_map *map, struct page_node *node);

/* Removes a node, which is in the map. Its key becomes 0. */
void page_map_remove(struct page_map *map, struct page_node *node);

static inline uint64_t page_grain(uint64_t address)
{
    return address >> PAGE_GRAIN_BITS & (PAGE_GRAINS - 1);
}

static inline _Atomic uint64_t *page_cells(uintptr_t page)
{
    return (_Atomic uint64_t *)(page - page % METADATA_ALIGNMENT);
}

/* The cell where the search for a grain begins. The factor is odd and near the golden ratio: grains
 * at equal distances spread evenly, and in the largest table each has a cell of its own. */
static inline uint64_t page_first_cell(uintptr_t page, uint64_t grain)
{
    return (grain * 2531 & (PAGE_GRAINS - 1)) >> page % METADATA_ALIGNMENT;
}

/* A cell: the number of its grain from 1 on, and the address of its node; 0: empty. */
static inline uint64_t page_cell_grain(uint64_t cell)
{
    return cell >> PAGE_ADDRESS_BITS;
}

static inline struct page_node *page_cell_node(uint64_t cell)
{
    return (struct page_node *)(uintptr_t)(cell & ((UINT64_C(1) << PAGE_ADDRESS_BITS) - 1));
}

/* Looks at the other cells near the first one. */
struct page_node *page_map_glance_further(uintptr_t page, uint64_t grain);

/* Returns the node of this address, if there is one. Otherwise it returns NULL, or any node that was
 * ever in the map, so the caller compares keys. It needs no lock: a node is ordered before its cell, cells before the
 * page, and a group before its place. */
static inline struct page_node *page_map_glance(const struct page_map *map, uint64_t address)
{
    if (address >> PAGE_GROUP_BITS >= PAGE_GROUPS)
        return NULL;
    const struct page_group *group =
        atomic_load_explicit(&map->group[address >> PAGE_GROUP_BITS], memory_order_acquire);
    if (!group)
        return NULL;
    uintptr_t page = atomic_load_explicit(
        &group->page[address >> PAGE_BITS & (PAGE_GROUP_PAGES - 1)], memory_order_acquire);
    if (!page)
        return NULL;
    uint64_t grain = page_grain(address);
    uint64_t cell =
        atomic_load_explicit(&page_cells(page)[page_first_cell(page, grain)], memory_order_acquire);
    return __builtin_expect(page_cell_grain(cell) == grain + 1, 1)
               ? page_cell_node(cell)
               : page_map_glance_further(page, grain);
}

/* Returns the node of this address, or NULL. */
struct page_node *page_map_find(const struct page_map *map, uint64_t address);

#endif
