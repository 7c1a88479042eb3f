/* Handles of several chunks: how large they are, and that they move, go home, go back, are lent and are
 * retired as one. */
#include "handle_world.h"

#include "allocator/pool/arena.h"
#include "allocator/share.h"
#include "allocator/mapping/release.h"

static void they_are_large_beside_large_blocks(void **state)
{
    (void)state;
    uint64_t made = COUNTER(num_device_alloc);
    take(5 * GIB);
    assert_int_equal(CALLS(CREATE), 320);
    assert_int_equal(CALLS(MAP), 320);
    assert_int_equal(CURRENT(segment), 320);
    assert_int_equal(COUNTER(num_device_alloc) - made, 320);
    take(64 * MIB);
    assert_int_equal(CALLS(CREATE), 320 + 4); /* of all memory */
    handle_world_setup(NULL);
    take(BLOCK);
    assert_int_equal(CALLS(CREATE), HANDLES);
    handle_world_setup(NULL);
    take(64 * MIB);
    assert_int_equal(CALLS(CREATE), 32); /* it is all there is */
}

static void given_a_size_they_have_it(void **state)
{
    (void)state;
    handle_world_remake("expandable_segments:True,large_segment_size_mb:4", 64 * GIB);
    take(5 * GIB);
    assert_int_equal(CALLS(CREATE), 1280);
    assert_int_equal(w.device.ranges, 1);
}

static void on_a_small_device_they_are_small(void **state)
{
    (void)state;
    handle_world_remake("expandable_segments:True", 2 * GIB);
    take(GIB);
    assert_int_equal(CALLS(CREATE), GIB / CHUNK);
}

/* Blocks of 17 MiB in handles of 16, every other one free. */
static void where_much_is_lost_they_are_small(void **state)
{
    uint64_t block[100];
    (void)state;
    give(take(5 * GIB));
    for (unsigned i = 0; i < 100; i++)
        block[i] = take(17 * MIB);
    take(5 * GIB - 1700 * MIB);
    for (unsigned i = 0; i < 100; i += 2)
        give(block[i]);
    uint64_t made = CALLS(CREATE);
    take(400 * MIB);
    assert_true(CALLS(CREATE) - made > 130);
}

#define MAP_NS 1000000

static void maps_take_a_while(struct fake_device *device, enum fake_call call, int after)
{
    (void)device;
    if (call == FAKE_MAP && !after)
        fake_advance(MAP_NS);
}

static void they_move_as_one(void **state)
{
    (void)state;
    make_room();
    w.device.meanwhile = maps_take_a_while;
    uint64_t took = COUNTER(map_ns);
    uint64_t made = CALLS(CREATE), mapped = CALLS(MAP), counted = COUNTER(num_maps);
    uint64_t reserved = CURRENT(reserved_bytes);
    take(2 * BLOCK);
    assert_int_equal(CALLS(CREATE), made);
    assert_int_equal(CALLS(MAP) - mapped, HANDLES);
    assert_int_equal(COUNTER(num_maps) - counted, CALLS(MAP) - mapped);
    assert_int_equal((COUNTER(map_ns) - took) / MAP_NS, HANDLES);
    assert_int_equal(CURRENT(reserved_bytes), reserved);
    assert_int_equal(w.device.used, reserved);
}

/* What was mapped where another one goes is taken down as a whole, and counts once. */
static void what_is_in_the_way_goes_as_one(void **state)
{
    (void)state;
    make_room();
    give(take(2 * BLOCK));
    assert_int_equal(take(BLOCK), low);
    uint64_t unmapped = CALLS(UNMAP), made = CALLS(CREATE), before = COUNTER(num_unmaps);
    uint64_t block = take(second + 2 * MIB);
    assert_int_equal(CALLS(CREATE) - made, 1);
    assert_int_equal(CALLS(UNMAP) - unmapped, 1);
    assert_int_equal(COUNTER(num_unmaps) - before, 1);
    give(block);
    give(low);
    give(take(2 * BLOCK + 2 * MIB)); /* nothing of it is taken to be there still */
    give(between);
    assert_all_goes_back();
}

/* Each has the other forgotten, and is new again. */
static void sizes_that_share_a_place_are_two(void **state)
{
    (void)state;
    uint64_t news = w.a->arena->packing.news;
    for (unsigned i = 0; i < 50; i++) {
        give(take(2 * MIB));
        give(take(365 * MIB / 2));
    }
    assert_true(w.a->arena->packing.news - news >= 99);
}

/* Handles whose home has been given away get a home where they are idle next. */
static void all_of_one_is_at_home(void **state)
{
    (void)state;
    make_room();
    uint64_t both = take(2 * BLOCK);
    policy.keep = 1;
    assert_int_equal(take(BLOCK), low);
    policy_reset();
    give(both);
    uint32_t slot = (uint32_t)((both - w.a->arena->base) / CHUNK);
    for (uint32_t i = 0; i < 2 * BLOCK / CHUNK; i++)
        assert_int_equal(w.a->arena->present[slot + i], AT_HOME);
}

/* A block that shares none does not have one of which it needs a part alone. */
static void none_is_called_back_in_part(void **state)
{
    (void)state;
    make_room();
    give(take(2 * BLOCK));
    take(2 * BLOCK - 6 * MIB);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), 2 * BLOCK - 2 * MIB);
    assert_int_equal(w.device.used, 2 * BLOCK - 2 * MIB);
}

/* It has both ends of the last handle's addresses, and no driver is asked. */
static void they_are_called_back_as_one(void **state)
{
    (void)state;
    make_room();
    uint64_t whole = take(2 * BLOCK);
    give(whole);
    uint64_t mapped = CALLS(MAP), made = CALLS(CREATE), unmapped = CALLS(UNMAP);
    assert_int_equal(take(2 * BLOCK - 3 * MIB), whole);
    assert_int_equal(take(2 * MIB), whole + 2 * BLOCK - 3 * MIB);
    assert_int_equal(CALLS(MAP), mapped);
    assert_int_equal(CALLS(CREATE), made);
    assert_int_equal(CALLS(UNMAP), unmapped);
}

/* One that is in use in part neither moves nor goes back, but serves what fits. */
static void one_in_use_in_part_stays(void **state)
{
    (void)state;
    uint64_t counted = COUNTER(num_device_free);
    give(take(BLOCK));
    uint64_t block = take(BLOCK - 5 * MIB);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), BLOCK);
    uint64_t made = CALLS(CREATE);
    assert_int_equal(take(4 * MIB), block + BLOCK - 5 * MIB);
    assert_int_equal(CALLS(CREATE), made);
    give(take(9 * MIB));
    assert_int_equal(CALLS(CREATE) - made, 1); /* of 8 MiB: 1 MiB is there */
    give(block);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), HANDLE);
    give(block + BLOCK - 5 * MIB);
    assert_all_goes_back();
    assert_int_equal(COUNTER(num_device_free) - counted, CALLS(RELEASE));
}

/* Where only larger ones are idle, one goes on behind the block, where its rest serves others. */
static void a_larger_one_goes_on_behind_the_block(void **state)
{
    (void)state;
    make_room();
    uint64_t made = CALLS(CREATE), reserved = CURRENT(reserved_bytes);
    uint64_t block = take(second + 2 * MIB), mapped = CALLS(MAP);
    take(BLOCK - HANDLE);
    assert_int_equal(take(14 * MIB), block + second + 2 * MIB);
    assert_int_equal(CALLS(CREATE), made);
    assert_int_equal(CALLS(MAP), mapped);
    assert_int_equal(CURRENT(reserved_bytes), reserved);
    give(block);
    give(block + second + 2 * MIB);
    give(low + HANDLE);
    give(between);
    assert_all_goes_back();
}

/* Where blocks share none, what is idle in handles too large goes back, and smaller ones are made. */
static void what_fits_no_gap_is_made_anew(void **state)
{
    (void)state;
    make_room();
    uint64_t reserved = CURRENT(reserved_bytes), made = CALLS(CREATE);
    take(second + 2 * MIB);
    assert_true(CURRENT(reserved_bytes) <= reserved);
    assert_int_equal(w.device.used, CURRENT(reserved_bytes));
    assert_int_equal(CALLS(CREATE) - made, 1);
    assert_int_equal(CALLS(RELEASE), 1);
}

/* Nor does it grow under a limit, nor where work is under way: then it waits. */
static void it_keeps_its_limit(void **state)
{
    (void)state;
    world_remake("expandable_segments:True,memory_limit_mb:6164", 64 * GIB);
    second = BLOCK + HANDLE;
    make_room();
    take(second + 2 * MIB);
    assert_true(CURRENT(reserved_bytes) <= 6164 * MIB);
}

static uint64_t lent, lent_bytes, last_handle;

static int note_handle(void *unused, uint64_t handle, uint64_t bytes)
{
    (void)unused;
    assert_true(handle && handle != last_handle);
    last_handle = handle;
    lent++;
    lent_bytes += bytes;
    return 0;
}

static void they_are_lent_whole(void **state)
{
    struct block_place place;
    struct block_loan loan;
    (void)state;
    uint64_t begin = take(BLOCK);
    give(begin);
    take(101 * MIB);
    uint64_t shared = take(100 * MIB);
    assert_int_equal(domain_mark(w.domain, shared, BLOCK_LENT, &place), 0);
    lent = lent_bytes = last_handle = 0;
    assert_int_equal(domain_lend(w.domain, shared, place.name, &loan, note_handle, NULL), 0);
    assert_int_equal(loan.offset, (shared - begin) % HANDLE);
    assert_int_equal(loan.bytes, 7 * HANDLE); /* 96 to 208 MiB */
    assert_int_equal(lent_bytes, loan.bytes);
    assert_int_equal(lent, 7);
}

/* What is set for a block is so for all of its handles; when all in them is free they can only go. */
static void they_are_retired_whole(void **state)
{
    struct block_place place;
    (void)state;
    give(take(BLOCK));
    uint64_t before = take(101 * MIB), pinned = take(100 * MIB), behind = take(BLOCK - 201 * MIB);
    assert_int_equal(domain_mark(w.domain, pinned, BLOCK_PINNED, &place), 0);
    give(pinned);
    assert_int_equal(arena_retired(w.a), 5 * HANDLE); /* 112 to 192 MiB */
    give(behind);
    assert_int_equal(arena_retired(w.a), 6 * HANDLE);
    give(before);
    assert_int_equal(arena_retired(w.a), 7 * HANDLE);
    take(BLOCK);
    assert_int_equal(arena_retired(w.a), 0);
    assert_int_equal(CURRENT(reserved_bytes), BLOCK);
    assert_int_equal(w.device.used, BLOCK);
}

/* Nor is anything handed out of one that is pinned. */
static void all_of_one_is_pinned(void **state)
{
    struct block_place place;
    (void)state;
    uint64_t begin = take(BLOCK);
    give(begin);
    take(101 * MIB);
    uint64_t pinned = take(100 * MIB);
    take(2 * MIB);
    uint64_t behind = take(BLOCK - 203 * MIB);
    assert_int_equal(domain_mark(w.domain, pinned, BLOCK_PINNED, &place), 0);
    give(behind);
    assert_true(take(4 * MIB) >= begin + 208 * MIB);
}

/* One number has a whole handle, also where single ones are free between. */
static void their_numbers_are_in_a_row(void **state)
{
    uint64_t block[32];
    (void)state;
    for (unsigned i = 0; i < 32; i++)
        block[i] = take(2 * MIB);
    for (unsigned i = 0; i < 32; i += 2)
        give(block[i]);
    domain_empty_cache(w.domain, 1);
    take(BLOCK);
    for (unsigned i = 0; i < 20; i++)
        take(MIB);
    assert_int_equal(w.device.used, CURRENT(reserved_bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(they_are_large_beside_large_blocks, handle_world_setup),
        cmocka_unit_test_setup(given_a_size_they_have_it, handle_world_setup),
        cmocka_unit_test_setup(on_a_small_device_they_are_small, handle_world_setup),
        cmocka_unit_test_setup(where_much_is_lost_they_are_small, handle_world_setup),
        cmocka_unit_test_setup(they_move_as_one, handle_world_setup),
        cmocka_unit_test_setup(sizes_that_share_a_place_are_two, handle_world_setup),
        cmocka_unit_test_setup(what_is_in_the_way_goes_as_one, handle_world_setup),
        cmocka_unit_test_setup(all_of_one_is_at_home, handle_world_setup),
        cmocka_unit_test_setup(none_is_called_back_in_part, handle_world_alone),
        cmocka_unit_test_setup(they_are_called_back_as_one, handle_world_setup),
        cmocka_unit_test_setup(one_in_use_in_part_stays, handle_world_setup),
        cmocka_unit_test_setup(a_larger_one_goes_on_behind_the_block, handle_world_setup),
        cmocka_unit_test_setup(what_fits_no_gap_is_made_anew, handle_world_alone),
        cmocka_unit_test_setup(it_keeps_its_limit, handle_world_setup),
        cmocka_unit_test_setup(they_are_lent_whole, handle_world_setup),
        cmocka_unit_test_setup(they_are_retired_whole, handle_world_setup),
        cmocka_unit_test_setup(all_of_one_is_pinned, handle_world_setup),
        cmocka_unit_test_setup(their_numbers_are_in_a_row, handle_world_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
