#include "allocator/base/page_map.h"

#define LEAST_CELLS (METADATA_ALIGNMENT / sizeof(uint64_t)) /* of a page */

static uint64_t key_of(const struct page_map *map, const struct page_node *node)
{
    return atomic_load_explicit(&node->key, memory_order_relaxed) & ~map->low;
}

static uint64_t load(_Atomic uint64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_acquire);
}

static unsigned cells_of(uintptr_t page)
{
    return PAGE_GRAINS >> page % METADATA_ALIGNMENT;
}

/* Returns the i-th cell that a search for this grain looks at. */
static _Atomic uint64_t *cell_at(uintptr_t page, uint64_t grain, unsigned i)
{
    return &page_cells(page)[page_first_cell(page, grain) ^ i];
}

int page_map_begin(struct page_map *map, struct metadata *metadata)
{
    map->metadata = metadata;
    map->group = metadata_take(NULL, PAGE_GROUPS * sizeof *map->group); /* hardly touched */
    return map->group ? 0 : -1;
}

/* The group of an address, which may be made; or NULL. */
static struct page_group *group_of(struct page_map *map, uint64_t address)
{
    if (address >> PAGE_GROUP_BITS >= PAGE_GROUPS)
        return NULL;
    struct page_group *_Atomic *at = &map->group[address >> PAGE_GROUP_BITS];
    struct page_group *group = atomic_load_explicit(at, memory_order_relaxed);
    if (!group && (group = metadata_take(map->metadata, sizeof *group)))
        atomic_store_explicit(at, group, memory_order_release);
    return group;
}

static unsigned number_of(uint64_t address)
{
    return address >> PAGE_BITS & (PAGE_GROUP_PAGES - 1);
}

/* Keeps the cells that a page has outgrown. They are linked by their first cell: as one without a
 * grain, no search takes it. */
static void retire(struct page_map *map, uintptr_t page)
{
    unsigned fewer = page % METADATA_ALIGNMENT;
    atomic_store_explicit(page_cells(page), (uintptr_t)map->unused[fewer], memory_order_relaxed);
    map->unused[fewer] = page_cells(page);
}

/* Empty cells, PAGE_GRAINS >> fewer of them; 0 without host memory. A thread without the lock may
 * still read cells that come back here: whatever it finds, it compares keys. */
static uintptr_t make_page(struct page_map *map, unsigned fewer)
{
    _Atomic uint64_t *cells = map->unused[fewer];
    if (!cells) {
        cells = metadata_take(map->metadata, sizeof *cells * (PAGE_GRAINS >> fewer));
        return cells ? (uintptr_t)cells + fewer : 0;
    }
    map->unused[fewer] = (_Atomic uint64_t *)(uintptr_t)load(cells);
    for (unsigned i = 0; i < PAGE_GRAINS >> fewer; i++)
        atomic_store_explicit(&cells[i], 0, memory_order_relaxed);
    return (uintptr_t)cells + fewer;
}

/* The cell near a grain's first one that has this value; NULL: there is none. */
static _Atomic uint64_t *find_cell(uintptr_t page, uint64_t grain, uint64_t value)
{
    for (unsigned i = 0; i < PAGE_NEAR; i++)
        if (load(cell_at(page, grain, i)) == value)
            return cell_at(page, grain, i);
    return NULL;
}

/* Gives a page twice as many cells, or its first ones. Returns -1: there is no host memory, or there
 * are as many cells as grains. A node that has a cell near its first one finds one there in a larger table, too. */
static int grow(struct page_map *map, _Atomic uintptr_t *place)
{
    uintptr_t old = atomic_load_explicit(place, memory_order_relaxed), new;
    unsigned cells = old ? cells_of(old) : 0, more = cells ? 2 * cells : LEAST_CELLS;
    if (more > PAGE_GRAINS ||
        !(new = make_page(map, PAGE_INDEX_BITS - (unsigned)__builtin_ctz(more))))
        return -1;
    for (unsigned i = 0; i < cells; i++) {
        uint64_t cell = load(&page_cells(old)[i]);
        if (cell)
            atomic_store_explicit(find_cell(new, page_cell_grain(cell) - 1, 0), cell,
                                  memory_order_relaxed);
    }
    atomic_store_explicit(place, new, memory_order_release);
    if (old)
        retire(map, old);
    return 0;
}

int page_map_insert(struct page_map *map, struct page_node *node)
{
    uint64_t address = key_of(map, node), grain = page_grain(address);
    struct page_group *group = group_of(map, address);
    if (!group || (uintptr_t)node >> PAGE_ADDRESS_BITS || address % (1u << PAGE_GRAIN_BITS))
        return -1;
    _Atomic uintptr_t *place = &group->page[number_of(address)];
    uint16_t *used = &group->used[number_of(address)];
    _Atomic uint64_t *room = NULL;
    uintptr_t page = atomic_load_explicit(place, memory_order_relaxed);
    if (page && 2u * *used < cells_of(page))
        room = find_cell(page, grain, 0);
    while (!room) {
        int grown = !grow(map, place);
        page = atomic_load_explicit(place, memory_order_relaxed);
        room = page ? find_cell(page, grain, 0) : NULL;
        if (!grown && !room)
            return -1;
    }
    atomic_store_explicit(room, (grain + 1) << PAGE_ADDRESS_BITS | (uintptr_t)node,
                          memory_order_release);
    ++*used;
    return 0;
}

void page_map_remove(struct page_map *map, struct page_node *node)
{
    uint64_t address = key_of(map, node), grain = page_grain(address);
    struct page_group *group = group_of(map, address);
    uintptr_t page = atomic_load_explicit(&group->page[number_of(address)], memory_order_relaxed);
    uint64_t cell = (grain + 1) << PAGE_ADDRESS_BITS | (uintptr_t)node;
    atomic_store_explicit(find_cell(page, grain, cell), 0, memory_order_release);
    atomic_store_explicit(&node->key, 0, memory_order_release);
    --group->used[number_of(address)];
}

__attribute__((noinline)) struct page_node *page_map_glance_further(uintptr_t page, uint64_t grain)
{
    for (unsigned i = 1; i < PAGE_NEAR; i++) {
        uint64_t cell = load(cell_at(page, grain, i));
        if (page_cell_grain(cell) == grain + 1)
            return page_cell_node(cell);
    }
    return NULL;
}

struct page_node *page_map_find(const struct page_map *map, uint64_t address)
{
    struct page_node *node = page_map_glance(map, address);
    return node && key_of(map, node) == address ? node : NULL;
}
