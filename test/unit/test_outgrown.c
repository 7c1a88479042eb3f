/* Chunks are as large as what is reserved makes them: an arena that is outgrown serves its holes,
 * moves what is idle, and gives that back before another grows. */
#include "world.h"

#include "allocator/arena.h"
#include "allocator/domain.h"
#include "allocator/share.h"

#define SMALL_CHUNKS (1280 * 2 * MIB) /* so much comes in chunks of 2 MiB */
#define STEP (64 * MIB)
#define STEPS (SMALL_CHUNKS / STEP)

static uint64_t block[STEPS];

static int setup(void **state)
{
    (void)state;
    world_remake("expandable_segments:True", 64 * GIB);
    for (unsigned i = 0; i < STEPS; i++)
        block[i] = take(STEP);
    assert_int_equal(w.device.ranges, 1);
    assert_int_equal(w.device.calls[FAKE_CREATE], SMALL_CHUNKS / (2 * MIB));
    return 0;
}

static void chunks_grow(void **state)
{
    (void)state;
    take(STEP);
    assert_int_equal(w.device.ranges, 2);
    assert_int_equal(w.device.calls[FAKE_CREATE], 1280 + 8);
    take(20 * GIB);
    assert_int_equal(w.device.ranges, 2); /* they are large enough */
    assert_int_equal(CURRENT(reserved_bytes), 20 * GIB + SMALL_CHUNKS + STEP);
    assert_int_equal(CURRENT(segment), 1280 + 8 + 2560);
}

static void who_asks_for_much_gets_large_ones(void **state)
{
    (void)state;
    world_remake("expandable_segments:True", 64 * GIB);
    take(5 * GIB);
    assert_int_equal(w.device.calls[FAKE_CREATE], 640);
    world_remake("expandable_segments:True,large_segment_size_mb:4", 64 * GIB);
    take(5 * GIB);
    assert_int_equal(w.device.calls[FAKE_CREATE], 1280);
    assert_int_equal(w.device.ranges, 1);
}

static void what_is_idle_goes_before_another_grows(void **state)
{
    (void)state;
    give(block[3]);
    give(block[9]);
    uint64_t released = w.device.calls[FAKE_RELEASE];
    take(3 * STEP);
    assert_int_equal(w.device.calls[FAKE_RELEASE] - released, 2 * STEP / (2 * MIB));
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + STEP);
    assert_int_equal(w.device.used, SMALL_CHUNKS + STEP);
    assert_int_equal(w.device.most_used, SMALL_CHUNKS + STEP);
}

static const struct lane_ops no_lane; /* but others' work may be under way */

/* Work that may use it is under way: nothing waits, and what is idle is of use where it is. */
static void what_may_still_be_used_stays(void **state)
{
    (void)state;
    give(block[3]);
    w.device.instant = 0;
    w.domain->lane.ops = &no_lane;
    uint64_t waits = w.device.calls[FAKE_WAIT];
    uint64_t released = w.device.calls[FAKE_RELEASE];
    take(2 * STEP);
    assert_int_equal(w.device.calls[FAKE_WAIT], waits);
    assert_int_equal(w.device.calls[FAKE_RELEASE], released);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + STEP);
    assert_int_equal(CURRENT(active_bytes), SMALL_CHUNKS + STEP);
    w.domain->lane.ops = NULL;
}

/* Of two arenas with idle memory the one grows that needs the least for the request. */
static void what_needs_least_grows(void **state)
{
    (void)state;
    take(STEP);       /* of large chunks, */
    give(take(STEP)); /* and as much is idle there */
    give(block[3]);
    give(block[9]);
    w.device.instant = 0;
    w.domain->lane.ops = &no_lane;
    take(3 * STEP);
    assert_int_equal(w.device.ranges, 2);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + 3 * STEP);
    take(2 * STEP);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + 4 * STEP);
    assert_int_equal(CURRENT(active_bytes), SMALL_CHUNKS + 4 * STEP);
    w.domain->lane.ops = NULL;
}

/* But not by thousands of small chunks for the sake of a few. */
static void what_saves_little_is_not_worth_it(void **state)
{
    (void)state;
    give(block[3]);
    w.device.instant = 0;
    w.domain->lane.ops = &no_lane;
    uint64_t made = w.device.calls[FAKE_CREATE];
    take(20 * GIB);
    assert_int_equal(w.device.calls[FAKE_CREATE] - made, 20 * GIB / (8 * MIB));
    w.domain->lane.ops = NULL;
}

static void what_is_idle_serves_first(void **state)
{
    (void)state;
    take(STEP);
    give(block[3]);
    give(block[9]);
    uint64_t made = w.device.calls[FAKE_CREATE];
    uint64_t hole = take(STEP), moved = 0;
    give(block[12]);
    assert_true(hole == block[3] || hole == block[9]);
    moved = take(2 * STEP); /* of two holes that lie apart */
    assert_int_equal(w.device.calls[FAKE_CREATE], made);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + STEP);
    give(moved);
    give(hole);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS - 2 * STEP);
    assert_int_equal(w.device.used, SMALL_CHUNKS - 2 * STEP);
}

static void without_addresses_it_grows_on(void **state)
{
    (void)state;
    w.device.code[FAKE_RESERVE] = FAKE_OOM;
    take(STEP);
    w.device.code[FAKE_RESERVE] = 0;
    take(STEP);
    assert_int_equal(w.device.ranges, 1);
    assert_int_equal(w.device.calls[FAKE_CREATE], 1280 + 64);
}

static void what_cannot_be_had_outgrows_nothing(void **state)
{
    uint64_t none;
    (void)state;
    assert_int_equal(allocator_malloc(w.a, 100 * GIB, &none), FAKE_OOM);
    assert_int_equal(w.device.ranges, 1);
    world_remake("expandable_segments:True", 64 * GIB);
    take(4 * MIB);
    assert_int_equal(allocator_malloc(w.a, 100 * GIB, &none), FAKE_OOM);
    uint64_t used = w.device.used;
    take(3 * MIB); /* of chunks of 2 MiB, as before */
    assert_int_equal(w.device.used - used, 4 * MIB);
}

/* What has to go back does so first, whichever arena it is in. */
static void what_can_only_go_back_goes_first(void **state)
{
    struct block_place place;
    (void)state;
    uint64_t pinned = take(STEP);
    take(STEP);
    assert_int_equal(domain_mark(w.domain, pinned, BLOCK_PINNED, &place), 0);
    give(pinned);
    give(block[3]);
    assert_int_equal(arena_retired(w.a), STEP);
    take(2 * STEP);
    assert_int_equal(arena_retired(w.a), 0);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + 2 * STEP);
}

/* Small blocks lie in the first arena alone: what is idle in another one goes back before that grows. */
static void small_blocks_do_not_grow_beside_what_is_idle(void **state)
{
    (void)state;
    give(take(STEP));
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + STEP);
    for (unsigned i = 0; i < 2 * STEP / MIB; i++)
        take(MIB);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + 2 * STEP);
    assert_int_equal(CURRENT_IN(reserved_bytes, SMALL_POOL), 2 * STEP);
}

static uint64_t other_block;

static void another_grows(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RESERVE || after || other_block)
        return;
    assert_ptr_equal(device, &w.device);
    other_block = 1;
    other_block = take(STEP);
}

static void two_threads_outgrow_it_at_once(void **state)
{
    (void)state;
    other_block = 0;
    w.device.meanwhile = another_grows;
    uint64_t mine = take(STEP);
    w.device.meanwhile = NULL;
    assert_int_equal(w.device.ranges, 2);
    assert_int_equal(w.device.calls[FAKE_CREATE], 1280 + 16);
    give(mine);
    give(other_block);
    assert_int_equal(take(2 * STEP), mine < other_block ? mine : other_block);
}

static void the_context_ends(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RESERVE || after)
        return;
    device->meanwhile = NULL;
    assert_int_equal(allocator_forget(w.a), STEPS);
}

static void a_context_that_ends_leaves_nothing(void **state)
{
    (void)state;
    take(STEP);
    give(take(5 * GIB));
    assert_int_equal(w.device.ranges, 2);
    assert_int_equal(allocator_forget(w.a), STEPS + 1);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    allocator_bury(w.a);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.mapped, 0);
    assert_int_equal(w.device.ranges, 0);

    setup(NULL);
    w.device.meanwhile = the_context_ends;
    assert_int_equal(try_take(STEP), ALLOCATOR_PASS);
    allocator_bury(w.a);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.ranges, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(chunks_grow, setup),
        cmocka_unit_test_setup(who_asks_for_much_gets_large_ones, setup),
        cmocka_unit_test_setup(what_is_idle_goes_before_another_grows, setup),
        cmocka_unit_test_setup(what_may_still_be_used_stays, setup),
        cmocka_unit_test_setup(what_needs_least_grows, setup),
        cmocka_unit_test_setup(what_saves_little_is_not_worth_it, setup),
        cmocka_unit_test_setup(what_is_idle_serves_first, setup),
        cmocka_unit_test_setup(without_addresses_it_grows_on, setup),
        cmocka_unit_test_setup(what_cannot_be_had_outgrows_nothing, setup),
        cmocka_unit_test_setup(what_can_only_go_back_goes_first, setup),
        cmocka_unit_test_setup(small_blocks_do_not_grow_beside_what_is_idle, setup),
        cmocka_unit_test_setup(two_threads_outgrow_it_at_once, setup),
        cmocka_unit_test_setup(a_context_that_ends_leaves_nothing, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
