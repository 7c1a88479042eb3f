/* The first place that has enough, as a walk over all of them finds it. */
#include "world.h"

#include "allocator/first_fit.h"
#include "random.h"

enum { MOST = 300, STEPS = 20000, ROOM = 304 + 32 + 16 };

static uint32_t walk(const uint32_t *has, uint32_t least)
{
    for (uint32_t place = 0; place < MOST; place++)
        if (has[place] >= least)
            return place;
    return UINT32_MAX;
}

static void the_first_is_found(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint32_t has[MOST] = {0}, most = 0;
        _Alignas(64) uint32_t memory[ROOM] = {0};
        struct first_fit fit;
        assert_true(first_fit_begin(&fit, memory, MOST) <= sizeof memory);
        uint64_t random = seed, used = 1 + random_below(&random, MOST);
        assert_true(first_fit_find(&fit, 1) == UINT32_MAX);
        for (int step = 0; step < STEPS; step++) {
            uint32_t place = (uint32_t)random_below(&random, used);
            has[place] = (uint32_t)(random_below(&random, 3) ? random_below(&random, 50) : 0);
            first_fit_set(&fit, place, has[place]);
            uint32_t least = 1 + (uint32_t)random_below(&random, 52);
            assert_int_equal(first_fit_find(&fit, least), walk(has, least));
        }
        for (uint32_t place = 0; place < MOST; place++)
            most = has[place] > most ? has[place] : most;
        assert_int_equal(first_fit_most(&fit), most);
        assert_int_equal(fit.top, (used > 16) + (used > 256));
    }
}

/* One place alone is a tree, too. */
static void one_place(void **state)
{
    (void)state;
    _Alignas(64) uint32_t memory[16] = {0};
    struct first_fit fit;
    assert_int_equal(first_fit_begin(&fit, memory, 1), sizeof memory);
    first_fit_set(&fit, 0, 7);
    assert_int_equal(first_fit_find(&fit, 7), 0);
    assert_true(first_fit_find(&fit, 8) == UINT32_MAX);
    first_fit_set(&fit, 0, 0);
    assert_true(first_fit_find(&fit, 1) == UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_is_found),
        cmocka_unit_test(one_place),
    };
    return cmocka_run_group_tests_name("first fit", tests, NULL, NULL);
}
