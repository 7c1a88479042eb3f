/* Which reusable block a request gets, what is split off, and how neighbours merge. */
#include "world.h"

/* Best fit, not first fit: of holes of 8, 4 and 6 MiB a request of 4 takes the one of 4. */
static void best_fit(void **state)
{
    uint64_t block[6];
    (void)state;
    world_remake("large_segment_size_mb:64", GIB);
    static const uint64_t size[] = {8, 2, 4, 2, 6, 2};
    for (int i = 0; i < 6; i++)
        block[i] = take(size[i] * MIB);
    for (int i = 0; i < 6; i += 2)
        give(block[i]);
    assert_int_equal(take(4 * MIB), block[2]);
    assert_int_equal(take(5 * MIB), block[4]);
    assert_int_equal(take(8 * MIB), block[0]);
}

static void equal_sizes_by_lowest_address(void **state)
{
    uint64_t block[9];
    (void)state;
    for (int i = 0; i < 9; i++)
        block[i] = take(4 * MIB); /* five to a segment */
    give(block[7]);
    give(block[3]);
    give(block[1]);
    assert_int_equal(take(4 * MIB), block[1]);
    assert_int_equal(take(4 * MIB), block[3]);
    assert_int_equal(take(4 * MIB), block[7]);
}

static void the_front_goes_to_the_caller(void **state)
{
    (void)state;
    uint64_t first = take(3 * MIB), second = take(3 * MIB);
    assert_int_equal(second, first + 3 * MIB);
    first = take(512);
    assert_int_equal(take(512), first + 512);
}

/* A small block is split when the rest is at least 512 bytes. */
static void small_split_threshold(void **state)
{
    uint64_t keep[3];
    (void)state;
    keep[0] = take(2048);
    keep[1] = take(512);
    give(keep[0]);
    assert_int_equal(take(1536), keep[0]);
    assert_int_equal(CURRENT(allocated_bytes), 2048);
    assert_int_equal(take(512), keep[0] + 1536);
    assert_int_equal(CURRENT(inactive_split_bytes), 2 * MIB - 2560);
}

/* A large one when the rest is more than 1 MiB: not at exactly 1 MiB. */
static void large_split_threshold(void **state)
{
    (void)state;
    uint64_t whole = take(12 * MIB);
    give(whole);
    assert_int_equal(take(11 * MIB), whole);
    assert_int_equal(CURRENT(allocated_bytes), 12 * MIB); /* with the unsplit tail */
    assert_int_equal(CURRENT(inactive_split), 0);
    give(whole);
    assert_int_equal(take(11 * MIB - 512), whole);
    assert_int_equal(CURRENT(allocated_bytes), 11 * MIB - 512);
    assert_int_equal(CURRENT(inactive_split_bytes), MIB + 512);
}

static void small_and_large_do_not_mix(void **state)
{
    (void)state;
    uint64_t small = take(MIB), large = take(MIB + 1);
    assert_int_equal(CURRENT_IN(reserved_bytes, SMALL_POOL), 2 * MIB);
    assert_int_equal(CURRENT_IN(reserved_bytes, LARGE_POOL), 20 * MIB);
    give(large);
    take(MIB); /* the other half of the small segment */
    take(MIB); /* not out of the large one */
    assert_int_equal(CURRENT_IN(segment, SMALL_POOL), 2);
    give(small);
    take(MIB + 512);
    assert_int_equal(CURRENT(segment), 3);
}

/* Blocks at or above the limit are not taken by smaller requests, and are never split. */
static void max_split_size_keeps_large_blocks_whole(void **state)
{
    (void)state;
    world_remake("max_split_size_mb:64", UINT64_MAX);
    uint64_t at = take(64 * MIB), below = take(64 * MIB - 2 * MIB);
    give(at);
    give(below);
    uint64_t small = take(40 * MIB);
    assert_int_equal(small, below); /* below the limit: taken, and split */
    assert_int_equal(CURRENT(allocated_bytes), 40 * MIB);
    assert_int_not_equal(take(30 * MIB), at);
    assert_int_equal(COUNTER(num_device_alloc), 3);
    assert_int_equal(take(64 * MIB), at);
}

/* At or above the limit a request takes a block only if it is less than 20 MiB larger, and gets all
 * of it. */
static void max_split_size_bounds_what_large_requests_waste(void **state)
{
    (void)state;
    world_remake("max_split_size_mb:64", UINT64_MAX);
    uint64_t big = take(120 * MIB);
    give(big);
    uint64_t fresh = take(100 * MIB); /* exactly 20 MiB larger: not taken */
    assert_int_not_equal(fresh, big);
    assert_int_equal(take(100 * MIB + 512), big);
    assert_int_equal(CURRENT(allocated_bytes), 220 * MIB);
    assert_int_equal(CURRENT(inactive_split), 0);
}

static void max_non_split_rounding_moves_that_bound(void **state)
{
    (void)state;
    world_remake("max_split_size_mb:64,max_non_split_rounding_mb:30", UINT64_MAX);
    uint64_t big = take(120 * MIB);
    give(big);
    assert_int_not_equal(take(90 * MIB), big);
    assert_int_equal(take(90 * MIB + 512), big);
}

static void without_max_split_size_everything_is_split(void **state)
{
    (void)state;
    uint64_t big = take(4 * GIB);
    give(big);
    assert_int_equal(take(3 * GIB), big);
    assert_int_equal(take(GIB), big + 3 * GIB);
    assert_int_equal(COUNTER(num_device_alloc), 1);
}

static void neighbours_merge_in_every_order(void **state)
{
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    (void)state;
    for (int o = 0; o < 6; o++) {
        world_remake("", GIB);
        uint64_t block[4];
        for (int i = 0; i < 4; i++)
            block[i] = take(5 * MIB);
        for (int i = 0; i < 3; i++)
            give(block[order[o][i]]);
        assert_int_equal(CURRENT(inactive_split), 1);
        assert_int_equal(CURRENT(inactive_split_bytes), 15 * MIB);
        assert_int_equal(take(9 * MIB), block[0]); /* two holes would not have had it */
        assert_int_equal(COUNTER(num_device_alloc), 1);
    }
}

static void segments_never_merge(void **state)
{
    (void)state;
    uint64_t a = take(10 * MIB), b = take(10 * MIB);
    assert_int_equal(b, a + 10 * MIB); /* side by side on this device */
    give(a);
    give(b);
    assert_int_not_equal(take(20 * MIB), a);
    assert_int_equal(CURRENT(segment), 3);
}

/* Programs register large blocks by page. Small ones between them, also in their pool when memory is
 * short, move none off its page. */
static void large_blocks_begin_on_pages(void **state)
{
    static const char *const confs[] = {"expandable_segments:True", "expandable_segments:False",
                                        "expandable_segments:True,large_segment_size_mb:6",
                                        "expandable_segments:True,roundup_power2_divisions:8"};
    (void)state;
    for (int i = 0; i < 8; i++) {
        uint64_t block[40] = {0}, code = 0;
        unsigned number = 1;
        world_page = i % 2 ? 65536 : 4096;
        world_remake(confs[i / 2], 90 * MIB);
        for (int step = 0; step < 4000; step++) {
            number = number * 1664525 + 1013904223;
            uint64_t *one = &block[number >> 16 & 31], least = i / 2 == 1 ? MIB + 1 : MIB;
            uint64_t more = number >> 24 & 3 ? (number >> 8) % (6 * MIB) : 0;
            uint64_t bytes = number >> 30 ? least + more : (number >> 8) % MIB;
            if (*one)
                give(*one);
            *one = 0;
            code += allocator_malloc(w.a, bytes, one) != 0;   /* also at the end of the device */
            int sure = bytes > MIB || !w.a->growth.as_native; /* else a part of a small segment */
            assert_true(!*one || bytes < least || !sure || *one % world_page == 0);
        }
        assert_in_range(code, 1, 3000);
    }
}

static void segment_sizes(void **state)
{
    static const struct {
        uint64_t request, segment;
    } table[] = {
        {1, 2 * MIB},
        {MIB, 2 * MIB},
        {MIB + 1, 20 * MIB},
        {10 * MIB - 512, 20 * MIB},
        {10 * MIB - 511, 10 * MIB},
        {10 * MIB, 10 * MIB},
        {10 * MIB + 1, 12 * MIB},
        {12 * MIB, 12 * MIB},
        {64 * MIB - 1, 64 * MIB},
        {3 * GIB, 3 * GIB},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        world_remake("", UINT64_MAX);
        take(table[i].request);
        assert_true(w.device.alloc_bytes == table[i].segment);
        assert_true(CURRENT(reserved_bytes) == table[i].segment);
    }
    world_remake("large_segment_size_mb:6", UINT64_MAX);
    take(5 * MIB);
    assert_true(w.device.alloc_bytes == 6 * MIB);
    take(7 * MIB); /* more than that segment: one of its own */
    assert_true(w.device.alloc_bytes == 8 * MIB);
    world_remake("large_segment_size_mb:64", UINT64_MAX);
    take(9 * MIB);
    assert_true(w.device.alloc_bytes == 64 * MIB);
    take(60 * MIB); /* fits no hole of 55 MiB */
    assert_true(w.device.alloc_bytes == 60 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(best_fit),
        RULE(equal_sizes_by_lowest_address),
        RULE(the_front_goes_to_the_caller),
        RULE(small_split_threshold),
        RULE(large_split_threshold),
        RULE(small_and_large_do_not_mix),
        RULE(max_split_size_keeps_large_blocks_whole),
        RULE(max_split_size_bounds_what_large_requests_waste),
        RULE(max_non_split_rounding_moves_that_bound),
        RULE(without_max_split_size_everything_is_split),
        RULE(neighbours_merge_in_every_order),
        RULE(segments_never_merge),
        RULE(large_blocks_begin_on_pages),
        RULE(segment_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
