/* The map of live blocks against a plain array. */
#include "world.h"

#include "allocator/base/page_map.h"
#include "random.h"

#define NODES 20000
#define PAGE (UINT64_C(1) << PAGE_BITS)

static struct page_map map;
static struct metadata metadata;

static int setup(void **state)
{
    (void)state;
    map = (struct page_map){.low = 3};
    return page_map_begin(&map, &metadata);
}

/* Nodes come and go at random addresses of a few groups, many of them beside each other. The two
 * lowest bits are none of the map's business. */
static void random_operations(void **state)
{
    static struct page_node node[NODES];
    static uint64_t address[NODES];
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < NODES; i++) {
        uint64_t group = random_below(&seed, 3) << PAGE_GROUP_BITS;
        address[i] = UINT64_C(0x7ffd00000000) + group + random_below(&seed, 64) * PAGE * 8 +
                     (uint64_t)i * 512 % PAGE + (uint64_t)i * 512 / PAGE * PAGE;
    }
    for (int step = 0; step < 400000; step++) {
        int i = (int)random_below(&seed, NODES);
        struct page_node *in_map = node[i].key ? &node[i] : NULL;
        assert_ptr_equal(page_map_find(&map, address[i]), in_map);
        if (in_map) {
            assert_ptr_equal(page_map_glance(&map, address[i]), in_map);
            page_map_remove(&map, &node[i]);
        } else {
            node[i].key = address[i] + (uint64_t)step % 4;
            assert_int_equal(page_map_insert(&map, &node[i]), 0);
        }
        assert_null(page_map_find(&map, address[i] + 1 + (uint64_t)step % 3));
    }
    for (int i = 0; i < NODES; i++)
        assert_ptr_equal(page_map_find(&map, address[i]), node[i].key ? &node[i] : NULL);
}

static unsigned cells_of(uint64_t address)
{
    uintptr_t page =
        map.group[address >> PAGE_GROUP_BITS]->page[address >> PAGE_BITS & (PAGE_GROUP_PAGES - 1)];
    return page ? PAGE_GRAINS >> page % METADATA_ALIGNMENT : 0;
}

/* Blocks at equal distances need few cells, and a page that is full of the smallest has no more than
 * those. */
static void cells_are_as_many_as_nodes_need(void **state)
{
    static struct page_node node[PAGE_GRAINS];
    (void)state;
    for (unsigned step = 1; step <= 256; step *= 2) {
        uint64_t begin = (77 + step) * PAGE;
        unsigned count = PAGE_GRAINS / step;
        for (unsigned i = 0; i < count; i++) {
            node[i].key = begin + i * step * 512;
            assert_int_equal(page_map_insert(&map, &node[i]), 0);
            unsigned least = i + 1 < 16 ? 16 : i + 1;
            assert_in_range(cells_of(begin), 1, 4 * least);
        }
        for (unsigned i = 0; i < count; i++) {
            assert_ptr_equal(page_map_find(&map, node[i].key), &node[i]);
            page_map_remove(&map, &node[i]);
        }
        for (unsigned i = 0; i < PAGE_GRAINS; i++)
            assert_null(page_map_find(&map, begin + i * 512));
    }
    assert_int_equal(cells_of(78 * PAGE), PAGE_GRAINS);
}

/* Tables that pages have outgrown serve others. */
static void what_is_outgrown_is_used_again(void **state)
{
    static struct page_node node[64];
    (void)state;
    for (uint64_t page = 33; page < 35; page++)
        for (unsigned i = 0; i < 64; i++) {
            if (node[i].key)
                page_map_remove(&map, &node[i]);
            node[i].key = page * PAGE + i * 512 * 11;
            assert_int_equal(page_map_insert(&map, &node[i]), 0);
            assert_ptr_equal(page_map_find(&map, node[i].key), &node[i]);
            if (page == 34 && i == 20) /* it has 64 cells by now, and those for 32 again */
                assert_null(map.unused[PAGE_INDEX_BITS - 6]);
        }
    assert_non_null(map.unused[PAGE_INDEX_BITS - 6]);
}

/* Where a page is at its largest, all grains have a cell. */
static void a_full_page(void **state)
{
    static struct page_node node[PAGE_GRAINS];
    uint64_t seed = 5;
    (void)state;
    for (unsigned i = 0; i < PAGE_GRAINS; i++)
        for (unsigned grain = (unsigned)random_below(&seed, PAGE_GRAINS);;
             grain = (grain + 1) % PAGE_GRAINS)
            if (!page_map_find(&map, 99 * PAGE + grain * 512)) {
                node[i].key = 99 * PAGE + grain * 512;
                assert_int_equal(page_map_insert(&map, &node[i]), 0);
                break;
            }
    for (unsigned i = 0; i < PAGE_GRAINS; i++)
        assert_ptr_equal(page_map_find(&map, node[i].key), &node[i]);
}

static void what_it_has_no_room_for(void **state)
{
    struct page_node node = {.key = PAGE}, beside = {.key = PAGE + 256};
    struct page_node high = {.key = UINT64_C(1) << 48};
    (void)state;
    assert_int_equal(page_map_insert(&map, &node), 0);
    assert_int_equal(page_map_insert(&map, &beside), -1);
    assert_ptr_equal(page_map_find(&map, PAGE), &node);
    assert_int_equal(page_map_insert(&map, &high), -1);
    assert_null(page_map_find(&map, UINT64_C(1) << 48));
    assert_null(page_map_find(&map, UINT64_MAX));
    assert_null(page_map_find(&map, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(random_operations, setup),
        cmocka_unit_test_setup(cells_are_as_many_as_nodes_need, setup),
        cmocka_unit_test_setup(what_is_outgrown_is_used_again, setup),
        cmocka_unit_test_setup(a_full_page, setup),
        cmocka_unit_test_setup(what_it_has_no_room_for, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
