/* From when on large blocks are the driver's own instead of mapped. */
#include "world.h"

#define CONF "expandable_segments:True,large_segment_size_mb:14"

static int setup(void **state)
{
    (void)state;
    world_remake(CONF, 56 * MIB);
    return 0;
}

/* Four chunks of 14 MiB; blocks of 10 hold two of them, a third by a corner, and of the fourth and
 * the holes no 36 can be made, though natively 20 of 56 are taken. From then on blocks are the
 * driver's own: as soon as the corners go, all fits that does natively. */
static void corners_are_lost_only_once(void **state)
{
    uint64_t block[5];
    (void)state;
    for (int i = 0; i < 5; i++)
        block[i] = take(10 * MIB);
    for (int i = 0; i < 5; i += 2)
        give(block[i]);
    assert_int_equal(try_take(38 * MIB), FAKE_OOM); /* natively too */
    give(take(14 * MIB));
    assert_int_equal(w.device.used, 56 * MIB);
    assert_int_equal(try_take(36 * MIB), FAKE_OOM);
    uint64_t made = w.device.calls[FAKE_CREATE];
    give(block[1]);
    uint64_t large = take(40 * MIB);
    assert_int_equal(fake_segment(large), 40 * MIB);
    assert_int_equal(w.device.used, 54 * MIB); /* with the chunk of the last block */
    give(block[3]);
    take(16 * MIB);
    give(large);
    take(19 * MIB + 1);
    take(20 * MIB);
    assert_int_equal(w.device.used, 56 * MIB);
    assert_int_equal(w.device.calls[FAKE_CREATE], made);
    assert_int_equal(COUNTER(num_ooms), 2);
}

/* Before a request fails it gets what a corner of mapped memory has to give. */
static void corners_are_the_last_resort(void **state)
{
    uint64_t block[5];
    (void)state;
    assert_int_equal(COUNTER(native_since_request), 0);
    for (int i = 0; i < 5; i++)
        block[i] = take(10 * MIB);
    for (int i = 0; i < 5; i += 2)
        give(block[i]);
    assert_int_equal(try_take(36 * MIB), FAKE_OOM);
    assert_int_equal(COUNTER(native_since_request), 6);
    assert_int_equal(fake_segment(take(14 * MIB)), 14 * MIB);
    assert_int_equal(take(10 * MIB), block[0]);
    assert_int_equal(try_take(11 * MIB), FAKE_OOM);
    assert_int_equal(w.device.used, 56 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(corners_are_lost_only_once, setup),
        cmocka_unit_test_setup(corners_are_the_last_resort, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
