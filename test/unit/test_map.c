/* The map against a plain array, through many growths; and the slab below
 * everything. */
#include "world.h"

#include <string.h>

#include "allocator/base/map.h"
#include "allocator/base/slab.h"
#include "random.h"

#define NODES 20000

static struct map_node node[NODES];
static int in_map[NODES];

static void random_operations(void **state)
{
    struct map map = {.count = 0};
    uint64_t seed = 3, count = 0;
    (void)state;
    assert_null(map_find(&map, 512));
    assert_null(map_remove(&map, 512));
    for (int i = 0; i < NODES; i++)
        node[i].key = UINT64_C(0x7f0000000000) + random_below(&seed, 1 << 20) * 512 * NODES +
                      (uint64_t)i * 512;
    for (int step = 0; step < 300000; step++) {
        int i = (int)random_below(&seed, NODES);
        assert_ptr_equal(map_find(&map, node[i].key), in_map[i] ? &node[i] : NULL);
        if (in_map[i]) {
            assert_ptr_equal(map_remove(&map, node[i].key), &node[i]);
            assert_null(map_remove(&map, node[i].key));
            count--;
        } else {
            assert_int_equal(map_insert(&map, &node[i]), 0);
            count++;
        }
        in_map[i] = !in_map[i];
        assert_int_equal(map.count, count);
        assert_null(map_find(&map, node[i].key + 1 + (uint64_t)step % 3));
    }
    for (int i = 0; i < NODES; i++)
        assert_ptr_equal(map_find(&map, node[i].key), in_map[i] ? &node[i] : NULL);
}

/* One bucket more for each insert once it is full, and no long chains. */
static void it_grows_by_one_bucket(void **state)
{
    static struct map_node many[70000];
    struct map map = {.count = 0};
    size_t n = sizeof many / sizeof *many;
    (void)state;
    for (size_t i = 0; i < n; i++) {
        uint64_t buckets = map.buckets;
        many[i].key = i * 2 * MIB;
        assert_int_equal(map_insert(&map, &many[i]), 0);
        assert_true((!buckets || map.buckets <= buckets + 2) && map.buckets >= map.count);
    }
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;
        for (struct map_node *link = map_find(&map, many[i].key); link; link = link->next)
            length++;
        longest = length > longest ? length : longest;
    }
    assert_in_range(longest, 1, 20);
}

static void a_slab_gives_zeroed_items_and_takes_them_again(void **state)
{
    struct slab slab = {.item_bytes = 96};
    static char *item[10000];
    (void)state;
    for (int i = 0; i < 10000; i++) {
        item[i] = slab_take(&slab);
        assert_non_null(item[i]);
        for (int b = 0; b < 96; b++)
            assert_int_equal(item[i][b], 0);
        memset(item[i], 0x5a, 96);
    }
    for (int i = 0; i < 10000; i++)
        for (int b = 0; b < 96; b++)
            assert_int_equal(item[i][b], 0x5a);
    slab_give(&slab, item[77]);
    slab_give(&slab, item[5]);
    char *again = slab_take(&slab);
    assert_ptr_equal(again, item[5]);
    assert_int_equal(again[0] | again[8] | again[95], 0);
    assert_ptr_equal(slab_take(&slab), item[77]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations),
        cmocka_unit_test(it_grows_by_one_bucket),
        cmocka_unit_test(a_slab_gives_zeroed_items_and_takes_them_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
