/* When blocks of mapped memory share no chunks, and from when on large blocks are the driver's own. */
#include "world.h"

#include "allocator/state/domain.h"

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

/* So does a small one, whose own chunks would be of a granule. */
static void of_small_requests_too(void **state)
{
    (void)state;
    take(55 * MIB);
    assert_int_equal(w.device.used, 56 * MIB);
    uint64_t first = take(1000);
    assert_int_equal(take(MIB - 1024), first + 1024);
    assert_int_equal(try_take(1), FAKE_OOM);
    assert_int_equal(COUNTER(num_ooms), 1);
    give(first);
    assert_int_equal(take(1000), first);
}

/* Once large blocks are the driver's own small ones lie in granules as natively, across no end of one. */
static void small_blocks_lie_across_no_granule(void **state)
{
    (void)state;
    world_remake("expandable_segments:True,large_segment_size_mb:2", 56 * MIB);
    w.a->growth.as_native = 1;
    uint64_t first = take(700 * KIB);
    assert_int_equal(fake_segment(first), 2 * MIB);
    assert_int_equal(take(700 * KIB), first + 700 * KIB);
    uint64_t third = take(700 * KIB);
    assert_int_equal(fake_segment(third), 2 * MIB);
    give(first);
    give(third);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(w.device.used, 2 * MIB);
}

/* Sizes that are all new: each block has what the driver would give it, and no less fits than
 * natively, to the granule. */
static void what_is_new_shares_no_chunk(void **state)
{
    (void)state;
    world_remake(CONF, 200 * MIB);
    uint64_t one = take(33 * MIB + 1), two = take(50 * MIB), three = take(115 * MIB);
    assert_int_equal(w.device.used, 200 * MIB); /* 34 + 50 + 116 */
    assert_int_equal(CURRENT(reserved_bytes), 200 * MIB);
    assert_int_equal(CURRENT(segment), 3 + 4 + 9);
    assert_int_equal(try_take(MIB + 1), FAKE_OOM);
    give(two);
    uint64_t four = take(40 * MIB), five = take(9 * MIB); /* 40 + 10: a tail of 8 went for those */
    assert_int_equal(w.device.used, 200 * MIB);
    give(one);
    give(three);
    take(150 * MIB);
    assert_int_equal(w.device.used, 200 * MIB);
    give(four);
    give(five);
    take(35 * MIB);
    take(7 * MIB);
    take(5 * MIB);
    assert_int_equal(CURRENT(reserved_bytes), 200 * MIB);
    assert_int_equal(COUNTER(num_ooms), 1);
    assert_int_equal(COUNTER(native_since_request), 0);
}

/* A hole of the right size is not enough. */
static void nor_does_it_share_by_chance(void **state)
{
    (void)state;
    world_remake(CONF, 200 * MIB);
    take(6 * MIB);
    give(take(30 * MIB)); /* packed: the rest of three chunks */
    assert_int_equal(w.device.used, 42 * MIB);
    uint64_t block = take(36 * MIB);
    assert_int_equal(w.device.used, 50 * MIB);
    give(block);
    assert_int_equal(take(36 * MIB - 512), block);
    assert_int_equal(w.device.used, 50 * MIB);
}

/* What comes again is packed. */
static void what_comes_again_shares(void **state)
{
    uint64_t block[4];
    (void)state;
    world_remake(CONF, 200 * MIB);
    for (int i = 0; i < 4; i++)
        block[i] = take(40 * MIB);
    assert_int_equal(w.device.used, 40 * MIB + 126 * MIB); /* the first, and 120 in nine chunks */
    for (int i = 0; i < 4; i++)
        give(block[i]);
    take(MIB + 1); /* in the tail of the first */
    take(113 * MIB);
    assert_int_equal(w.device.used, 166 * MIB);
}

/* What cannot be given back now is not waited for: then chunks are shared after all. */
static void what_does_not_go_back_is_shared(void **state)
{
    (void)state;
    world_remake(CONF, 98 * MIB);
    uint64_t one = take(35 * MIB);
    take(61 * MIB);
    assert_int_equal(w.device.used, 98 * MIB);
    give(one);
    w.device.code[FAKE_RELEASE] = FAKE_INVALID;
    take(26 * MIB); /* two whole chunks are idle, and a tail of 8 */
    assert_int_equal(w.device.used, 98 * MIB);
    assert_int_equal(COUNTER(num_alloc_retries), 0);
    assert_int_equal(COUNTER(num_ooms), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(corners_are_lost_only_once, setup),
        cmocka_unit_test_setup(corners_are_the_last_resort, setup),
        cmocka_unit_test_setup(of_small_requests_too, setup),
        cmocka_unit_test_setup(small_blocks_lie_across_no_granule, setup),
        RULE(what_is_new_shares_no_chunk),
        RULE(nor_does_it_share_by_chance),
        RULE(what_comes_again_shares),
        RULE(what_does_not_go_back_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
