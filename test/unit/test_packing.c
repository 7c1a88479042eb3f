/* When blocks of mapped memory share no chunks, and from when on large blocks are the driver's own. */
#include "world.h"

#include "allocator/state/domain.h"

#define CONF "expandable_segments:True"

static int setup(void **state)
{
    (void)state;
    world_remake(CONF, 14 * MIB);
    return 0;
}

/* Five blocks of 2 MiB behind one of 1.5 lie across the ends of chunks. The first, third and fifth
 * stay: they hold six chunks of seven by corners, and natively three. */
static void hold_corners(uint64_t block[6])
{
    block[0] = take(1536 * KIB);
    for (int i = 1; i < 6; i++)
        block[i] = take(2 * MIB);
    for (int i = 0; i < 6; i += 2)
        give(block[i]);
    assert_int_equal(w.device.used, 12 * MIB);
}

/* So no 6 MiB can be made, though natively 6 of 14 are taken. From then on blocks are the driver's own:
 * as soon as the corners go, all fits that does natively. */
static void corners_are_lost_only_once(void **state)
{
    uint64_t block[6];
    (void)state;
    hold_corners(block);
    assert_int_equal(try_take(9 * MIB), FAKE_OOM); /* natively too */
    assert_int_equal(COUNTER(native_since_request), 0);
    assert_int_equal(try_take(6 * MIB), FAKE_OOM);
    uint64_t made = w.device.calls[FAKE_CREATE];
    give(block[1]);
    uint64_t large = take(6 * MIB);
    assert_int_equal(fake_segment(large), 6 * MIB);
    give(block[3]);
    take(2 * MIB);
    give(large);
    take(5 * MIB + 1);
    take(2 * MIB);
    assert_int_equal(w.device.used, 14 * MIB);
    assert_int_equal(w.device.calls[FAKE_CREATE], made);
    assert_int_equal(COUNTER(num_ooms), 2);
}

/* Before a request fails it gets what a corner of mapped memory has to give. */
static void corners_are_the_last_resort(void **state)
{
    uint64_t block[6];
    (void)state;
    hold_corners(block);
    assert_int_equal(try_take(6 * MIB), FAKE_OOM);
    assert_int_equal(COUNTER(native_since_request), 7);
    assert_int_equal(fake_segment(take(2 * MIB)), 2 * MIB);
    assert_int_equal(take(2 * MIB), block[2]);
    assert_int_equal(take(2 * MIB), block[4]);
    take(2 * MIB); /* of the corners of two chunks, 1.5 and 0.5 */
    assert_int_equal(try_take(MIB + 1), FAKE_OOM);
    assert_int_equal(w.device.used, 14 * MIB);
}

/* So does a small one, whose own chunks would be of a granule. */
static void of_small_requests_too(void **state)
{
    (void)state;
    take(13 * MIB);
    assert_int_equal(w.device.used, 14 * MIB);
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
    world_remake(CONF, 56 * MIB);
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
    assert_int_equal(try_take(MIB + 1), FAKE_OOM);
    give(two);
    uint64_t four = take(40 * MIB), five = take(9 * MIB);
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
    uint64_t low = take(7 * MIB);
    give(take(31 * MIB + 512 * KIB)); /* packed: from the middle of a chunk on */
    assert_int_equal(w.device.used, 40 * MIB);
    uint64_t block = take(33 * MIB - 512);
    assert_int_equal(w.device.used, 42 * MIB);
    assert_int_equal((block - low) % (2 * MIB), 0);
    give(block);
    assert_int_equal(take(33 * MIB - 1024), block);
    assert_int_equal(w.device.used, 42 * MIB);
}

/* What comes again is packed. */
static void what_comes_again_shares(void **state)
{
    uint64_t block[4];
    (void)state;
    world_remake(CONF, 200 * MIB);
    for (int i = 0; i < 4; i++)
        block[i] = take(41 * MIB);
    assert_int_equal(w.device.used, 164 * MIB);
    for (int i = 0; i < 4; i++)
        give(block[i]);
    take(123 * MIB);
    assert_int_equal(w.device.used, 164 * MIB);
}

/* What cannot be given back now is not waited for: then chunks are shared after all. */
static void what_does_not_go_back_is_shared(void **state)
{
    (void)state;
    world_remake(CONF, 98 * MIB);
    uint64_t low = take(61 * MIB), one = take(35 * MIB);
    assert_int_equal(w.device.used, 98 * MIB);
    give(one);
    w.device.code[FAKE_RELEASE] = FAKE_INVALID;
    assert_int_equal(take(37 * MIB), low + 61 * MIB);
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
