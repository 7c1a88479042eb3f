/* Published experiments at the allocator alone, to the byte. */
#include "world.h"

/* 1: ten parameter tensors of a five-layer network, then five outputs. */
static void activations_of_a_network(void **state)
{
    static const uint64_t width[] = {3, 300, 300, 400, 300, 100};
    (void)state;
    take(4608);
    assert_int_equal(CURRENT(allocated_bytes), 4608);
    for (int i = 0; i < 5; i++) {
        take(width[i] * width[i + 1] * 4);
        take(width[i + 1] * 4);
    }
    assert_int_equal(CURRENT(requested_bytes), 4608 + 1449200);
    assert_int_equal(CURRENT(allocated_bytes), 1457152);
    for (int i = 0; i < 5; i++)
        take(10 * width[i + 1] * 4);
    assert_int_equal(CURRENT(allocated_bytes), 1514496);
}

/* 2: allocated against reserved. */
static void emptying_the_cache(void **state)
{
    (void)state;
    uint64_t a = take(4 * MIB), b = take(16 * MIB);
    assert_int_equal(CURRENT(allocated_bytes), 20971520);
    assert_int_equal(CURRENT(reserved_bytes), 20971520);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), 20971520);
    give(a);
    assert_int_equal(CURRENT(allocated_bytes), 16777216);
    assert_int_equal(CURRENT(reserved_bytes), 20971520);
    give(b);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(allocated_bytes), 0);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    assert_int_equal(w.device.used, 0);
}

/* 4 (a): ten 4 MiB tensors, every second one freed, then 64 MiB. */
static void no_hole_serves_64_mib(void **state)
{
    uint64_t tensor[10];
    (void)state;
    for (int i = 0; i < 10; i++)
        tensor[i] = take(4 * MIB);
    assert_int_equal(CURRENT(segment), 2);
    for (int i = 0; i < 10; i += 2)
        give(tensor[i]);
    take(64 * MIB);
    assert_int_equal(CURRENT(segment), 3);
    assert_int_equal(CURRENT(inactive_split_bytes), 20971520);
    assert_int_equal(CURRENT(reserved_bytes), 104 * MIB);
}

/* 4 (b): A keeps 1 GiB and frees 4; B takes 1; A's 1 is freed; A wants 1 + 4 again. */
static int two_tenants(const char *conf)
{
    world_remake(conf, 8 * GIB);
    uint64_t one = take(GIB), four = take(4 * GIB);
    give(four);
    take(GIB);
    give(one);
    take(GIB);
    return try_take(4 * GIB);
}

static void by_default_the_hole_was_split(void **state)
{
    (void)state;
    assert_int_equal(two_tenants("memory_limit_mb:8192"), FAKE_OOM);
    assert_int_equal(CURRENT(allocated_bytes), 2 * GIB);
    assert_int_equal(CURRENT(reserved_bytes), 5 * GIB);
    assert_int_equal(COUNTER(num_ooms), 1);
}

static void max_split_size_keeps_it(void **state)
{
    static const char *const conf[] = {"max_split_size_mb:128", "max_split_size_mb:256",
                                       "max_split_size_mb:512"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(two_tenants(conf[i]), 0);
        assert_int_equal(CURRENT(allocated_bytes), 6 * GIB);
        assert_int_equal(CURRENT(reserved_bytes), 6 * GIB);
        assert_int_equal(COUNTER(num_ooms), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(activations_of_a_network), RULE(emptying_the_cache),
        RULE(no_hole_serves_64_mib),    RULE(by_default_the_hole_was_split),
        RULE(max_split_size_keeps_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
