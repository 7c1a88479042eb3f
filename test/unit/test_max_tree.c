/* The first place that has enough, and the best of many from there on, as a walk over all of them finds them. */
#include "world.h"

#include "allocator/base/max_tree.h"
#include "random.h"

enum { MOST = 2500, STEPS = 5000, ROOM = 2512 + 160 + 16 };

static uint32_t walk(const uint32_t *has, uint32_t least)
{
    for (uint32_t place = 0; place < MOST; place++)
        if (has[place] >= least)
            return place;
    return UINT32_MAX;
}

static uint32_t walk_best(const uint32_t *has, uint32_t least)
{
    uint32_t first = walk(has, least), best = first;
    for (uint32_t place = first; place < MOST && place < first - first % 16 + 1024; place++)
        if (has[place] >= least && has[place] < has[best])
            best = place;
    return best;
}

static void the_first_and_the_best_are_found(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint32_t has[MOST] = {0}, most = 0;
        _Alignas(64) uint32_t memory[ROOM] = {0};
        struct max_tree fit;
        assert_true(max_tree_begin(&fit, memory, MOST) <= sizeof memory);
        uint64_t random = seed, used = 1 + random_below(&random, seed % 2 ? 300 : MOST);
        uint64_t kinds = seed % 3 ? 50 : 5000; /* of these few are as good as the best */
        assert_true(max_tree_find(&fit, 1) == UINT32_MAX);
        for (int step = 0; step < STEPS; step++) {
            uint32_t place = (uint32_t)random_below(&random, used);
            has[place] = (uint32_t)(random_below(&random, 3) ? random_below(&random, kinds) : 0);
            has[place] = random_below(&random, 99) ? has[place] : UINT32_MAX;
            max_tree_set(&fit, place, has[place]);
            uint32_t least = 1 + (uint32_t)random_below(&random, kinds + 2);
            assert_int_equal(max_tree_find(&fit, least), walk(has, least));
            if (walk(has, least) != UINT32_MAX)
                assert_int_equal(max_tree_best(&fit, walk(has, least), least),
                                 walk_best(has, least));
        }
        for (uint32_t place = 0; place < MOST; place++)
            most = has[place] > most ? has[place] : most;
        assert_int_equal(max_tree_most(&fit), most);
        assert_int_equal(fit.top, (used > 16) + (used > 256));
    }
}

/* One place alone is a tree, too. */
static void one_place(void **state)
{
    (void)state;
    _Alignas(64) uint32_t memory[16] = {0};
    struct max_tree fit;
    assert_int_equal(max_tree_begin(&fit, memory, 1), sizeof memory);
    max_tree_set(&fit, 0, 7);
    assert_int_equal(max_tree_find(&fit, 7), 0);
    assert_int_equal(max_tree_best(&fit, 0, 7), 0);
    assert_true(max_tree_find(&fit, 8) == UINT32_MAX);
    max_tree_set(&fit, 0, 0);
    assert_true(max_tree_find(&fit, 1) == UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_and_the_best_are_found),
        cmocka_unit_test(one_place),
    };
    return cmocka_run_group_tests_name("first fit", tests, NULL, NULL);
}
