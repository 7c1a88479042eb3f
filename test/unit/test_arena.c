/* Mapped memory: what is idle is mapped elsewhere before anything is made, goes home, and comes
 * back without the driver; whatever call of the driver fails, the books stay right. */
#include "world.h"

#include "allocator/base/policy.h"
#include "allocator/state/domain.h"
#include "allocator/share.h"

#define CONF "expandable_segments:True,large_segment_size_mb:2"

static int setup(void **state)
{
    (void)state;
    world_remake(CONF, 64 * MIB);
    return 0;
}

/* Holes of 8 MiB, apart from each other. */
static void make_holes(uint64_t *kept, unsigned n)
{
    uint64_t hole[8];
    for (unsigned i = 0; i < n; i++) {
        hole[i] = take(8 * MIB);
        kept[i] = take(4 * MIB);
    }
    for (unsigned i = 0; i < n; i++)
        give(hole[i]);
}

static void idle_memory_serves_where_no_hole_does(void **state)
{
    uint64_t kept[4];
    (void)state;
    make_holes(kept, 4);
    assert_int_equal(CURRENT(reserved_bytes), 48 * MIB);
    uint64_t large = take(32 * MIB);
    assert_int_equal(CURRENT(reserved_bytes), 48 * MIB);
    assert_int_equal(w.device.used, 48 * MIB);
    assert_int_equal(CURRENT(active_bytes), 48 * MIB);
    give(large);
    give(kept[0]);
    assert_int_equal(CURRENT(reserved_bytes), 48 * MIB);
}

/* What a report calls the largest request is served without the driver's memory, and no larger one
 * is. */
static void one_request_can_have_all_that_is_idle(void **state)
{
    struct device_stats report;
    uint64_t kept[4];
    (void)state;
    make_holes(kept, 4);
    assert_int_equal(stats_copy(&report, &w.stats), 0);
    uint64_t largest = stats_get(&report, COUNTER_largest_allocatable_bytes);
    assert_int_equal(COUNTER(largest_allocatable_bytes), 8 * MIB);
    assert_int_equal(largest, 32 * MIB);
    uint64_t made = COUNTER(num_device_alloc), all = take(largest);
    assert_int_equal(COUNTER(num_device_alloc), made);
    assert_int_equal(COUNTER(movable_bytes), 0);
    give(all);
    take(largest + MIB);
    assert_true(COUNTER(num_device_alloc) > made);
    allocator_forget(w.a);
    assert_int_equal(COUNTER(movable_bytes), 0);
    allocator_bury(w.a);
}

/* A program that asks for less and less until it gets some fails a thousand times: each time at
 * once, without taking all memory from others. */
static void what_is_not_there_is_not_tried(void **state)
{
    uint64_t block;
    (void)state;
    give(take(40 * MIB));
    uint64_t made = w.device.calls[FAKE_CREATE];
    for (uint64_t size = 90 * MIB; size > 64 * MIB; size -= MIB)
        assert_int_equal(allocator_malloc(w.a, size, &block), w.a->ops->out_of_memory);
    assert_int_equal(w.device.calls[FAKE_CREATE], made);
    give(take(64 * MIB));
    assert_int_equal(w.device.calls[FAKE_CREATE] - made, 12); /* and 20 are idle */
}

static void what_repeats_asks_no_driver(void **state)
{
    uint64_t kept[4];
    (void)state;
    make_holes(kept, 4);
    give(take(32 * MIB));
    uint64_t maps = w.device.calls[FAKE_MAP];
    for (int step = 0; step < 10; step++) {
        uint64_t small[4];
        for (int i = 0; i < 4; i++)
            small[i] = take(8 * MIB); /* at home */
        for (int i = 0; i < 4; i++)
            give(small[i]);
        give(take(32 * MIB));
    }
    assert_int_equal(w.device.calls[FAKE_MAP], maps);
    assert_int_equal(w.device.calls[FAKE_UNMAP], 0);
}

static void reserved_is_the_sum_and_no_more(void **state)
{
    uint64_t address;
    (void)state;
    uint64_t first = take(40 * MIB);
    give(first);
    uint64_t half = take(24 * MIB);
    assert_int_equal(half, first);
    take(40 * MIB); /* 16 idle, and 24 new */
    assert_int_equal(CURRENT(reserved_bytes), 64 * MIB);
    assert_int_equal(try_take(2 * MIB), FAKE_OOM);
    assert_int_equal(hit(2 * MIB, &address), ALLOCATOR_MISS);
    assert_int_equal(w.device.used, 64 * MIB);
}

static void all_of_it_can_be_given_back(void **state)
{
    uint64_t kept[4];
    (void)state;
    make_holes(kept, 4);
    give(take(32 * MIB));
    for (int i = 0; i < 4; i++)
        give(kept[i]);
    assert_int_equal(domain_empty_cache(w.domain, 1), 48 * MIB);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    assert_int_equal(CURRENT(segment), 0);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.mapped, 0);
    give(take(60 * MIB)); /* and it begins anew */
    assert_int_equal(CURRENT(reserved_bytes), 60 * MIB);
}

/* Blocks of 3 MiB, chunks of 2: the pinned one shares a chunk with the first, and none with the
 * third. */
static void pinned_memory_is_the_drivers_again(void **state)
{
    struct block_place place;
    (void)state;
    uint64_t first = take(3 * MIB), pinned = take(3 * MIB), third = take(3 * MIB);
    for (int on = 1; on < 4; on++) { /* set, taken back, set */
        domain_mark(w.domain, pinned, on % 2 ? BLOCK_PINNED : BLOCK_UNPINNED, &place);
        assert_int_equal(domain_find(w.domain, pinned, &place) + place.sync_memops, on % 2);
    }
    assert_int_equal(COUNTER(num_pinned_blocks), 1);
    assert_int_equal(CURRENT(reserved_bytes), 10 * MIB);
    give(pinned);
    give(first);
    uint64_t made = w.device.calls[FAKE_CREATE];
    give(take(4 * MIB)); /* one chunk is idle, two are nobody's */
    assert_int_equal(w.device.calls[FAKE_CREATE] - made, 1);
    give(take(60 * MIB)); /* all but the third's */
    assert_int_equal(w.device.used, 64 * MIB);
    give(third);
    assert_int_equal(domain_empty_cache(w.domain, 1), 64 * MIB);
    assert_int_equal(w.device.used + w.device.mapped, 0);
    assert_int_equal(domain_mark(w.domain, take(5 * MIB), BLOCK_PINNED, &place), 0);
    assert_int_equal(allocator_forget(w.a), 1);
    allocator_bury(w.a);
    assert_int_equal(w.device.used, 0);
}

/* garbage_collection_threshold: before anything grows, what is idle above it goes; what a request
 * can be made of stays. */
static void idle_chunks_above_the_threshold_go(void **state)
{
    (void)state;
    world_remake("expandable_segments:True,large_segment_size_mb:4,memory_limit_mb:64,"
                 "garbage_collection_threshold:0.5",
                 UINT64_MAX);
    give(take(60 * MIB));
    assert_int_equal(CURRENT(reserved_bytes), 60 * MIB);
    w.a->growth.as_native = 1; /* small blocks get segments */
    take(1000);
    w.a->growth.as_native = 0;
    assert_int_equal(CURRENT_IN(reserved_bytes, LARGE_POOL), 32 * MIB);
    assert_int_equal(w.device.used, 34 * MIB);
    take(20 * MIB);
    take(20 * MIB); /* 12 are idle, the rest is new */
    assert_int_equal(CURRENT_IN(reserved_bytes, LARGE_POOL), 40 * MIB);
}

/* All that is idle goes once nothing was asked for or freed between two calls, cached blocks too.
 * Without anything idle no driver is asked. */
static void what_lies_idle_goes_back(void **state)
{
    static const char *const confs[] = {CONF, "expandable_segments:False"};
    (void)state;
    for (int way = 0; way < 2; way++) {
        world_remake(confs[way], 100 * MIB);
        uint64_t block = take(40 * MIB), small = take(4096);
        domain_return_idle(w.domain);
        domain_return_idle(w.domain);
        uint64_t used = w.device.used;
        give(block);
        give(small);
        domain_return_idle(w.domain); /* idle, but not for long */
        assert_int_equal(w.device.used, used);
        assert_int_equal(COUNTER(idle_returned_bytes), 0);
        domain_return_idle(w.domain);
        assert_int_equal(w.device.used, 0);
        assert_int_equal(COUNTER(idle_returned_bytes), used);
        uint64_t frees = w.device.calls[FAKE_RELEASE], fences = w.device.calls[FAKE_RECORD];
        domain_return_idle(w.domain);
        domain_return_idle(w.domain);
        assert_int_equal(w.device.calls[FAKE_RELEASE], frees);
        assert_int_equal(w.device.calls[FAKE_RECORD], fences);
        give(take(40 * MIB)); /* it serves on */
        assert_true(allocator_is_valid(w.a));
    }
}

/* A program at work keeps what it needed since the last call, whichever memory that was. */
static void what_the_last_period_needed_stays(void **state)
{
    static const char *const confs[] = {CONF, "expandable_segments:False"};
    (void)state;
    for (int way = 0; way < 2; way++) {
        world_remake(confs[way], 200 * MIB);
        give(take(100 * MIB));
        domain_return_idle(w.domain);
        for (int period = 0; period < 3; period++) {
            give(take(20 * MIB));
            domain_return_idle(w.domain);
            assert_int_equal(w.device.used, way ? 100 * MIB : 20 * MIB);
        }
    }
}

/* A program whose step takes four looks needs most of its memory in one of them. It gives it back
 * and takes it again a few times, and then keeps it. Later it needs less: that goes back. */
static void long_steps_keep_their_memory(void **state)
{
    uint64_t made = 0;
    (void)state;
    world_remake(CONF, 200 * MIB);
    for (int look = 0; look < 120; look++) {
        give(take(look % 4 ? 8 * MIB : 100 * MIB));
        domain_return_idle(w.domain);
        if (look == 24)
            made = COUNTER(num_device_alloc);
    }
    assert_int_equal(COUNTER(num_device_alloc), made);
    assert_int_equal(w.device.used, 100 * MIB);
    for (int look = 0; look < 20; look++) {
        give(take(8 * MIB));
        domain_return_idle(w.domain);
    }
    assert_int_equal(w.device.used, 8 * MIB);
}

/* What goes back was idle all the time, though its neighbours came and went. */
static void what_only_merges_counts_as_idle(void **state)
{
    (void)state;
    uint64_t block = take(40 * MIB), first = take(4 * MIB);
    give(block);
    domain_return_idle(w.domain); /* the hole: 40 MiB */
    give(first);
    take(2 * MIB);
    domain_return_idle(w.domain);
    assert_int_equal(COUNTER(idle_returned_bytes), 40 * MIB);
}

/* Work that is under way keeps its memory. */
static void memory_in_use_stays(void **state)
{
    (void)state;
    world_remake("expandable_segments:False", 64 * MIB);
    uint64_t block = take(40 * MIB);
    give(block);
    domain_return_idle(w.domain);
    w.device.instant = 0;
    domain_return_idle(w.domain);
    assert_int_equal(w.device.used, 40 * MIB);
    assert_int_equal(COUNTER(idle_returned_bytes), 0);
    assert_true(w.device.last_timeout <= policy.moment_wait_ns);
    assert_int_equal(take(40 * MIB), block); /* it serves on */
}

/* One call after the other fails, once. */
static void whatever_fails_the_books_are_right(void **state)
{
    static const enum fake_call calls[] = {FAKE_RESERVE, FAKE_CREATE, FAKE_MAP,
                                           FAKE_ALLOW,   FAKE_UNMAP,  FAKE_RELEASE};
    (void)state;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (uint64_t number = 1; number < 30; number++) {
            uint64_t block[12];
            world_remake(CONF, 64 * MIB);
            w.device.failing = calls[c];
            w.device.failing_number = number;
            for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 12; i++)
                    if (allocator_malloc(w.a, (uint64_t)(3 + i % 5) * MIB, &block[i]))
                        block[i] = 0;
                for (int i = 0; i < 12; i += 2)
                    if (block[i])
                        give(block[i]);
                uint64_t large;
                if (allocator_malloc(w.a, 20 * MIB, &large) == 0)
                    give(large);
                assert_true(allocator_is_valid(w.a));
                for (int i = 1; i < 12; i += 2)
                    if (block[i])
                        give(block[i]);
                domain_empty_cache(w.domain, 1);
            }
            assert_true(allocator_is_valid(w.a));
            assert_int_equal(CURRENT(allocated_bytes), 0);
            assert_true(CURRENT(reserved_bytes) <= w.device.used);
            assert_true(w.device.used <= CURRENT(reserved_bytes) + 2 * MIB);
        }
}

static void without_it_there_are_segments(void **state)
{
    (void)state;
    world_remake(CONF, 64 * MIB);
    assert_true(allocator_maps(w.a));
    w.device.code[FAKE_RESERVE] = DEVICE_UNSUPPORTED;
    struct allocator *other = world_add(&w.device, NULL);
    assert_false(allocator_maps(other));
    uint64_t address;
    assert_int_equal(allocator_malloc(other, 5 * MIB, &address), 0);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 1);
}

static void a_context_that_ends_leaves_nothing(void **state)
{
    (void)state;
    take(20 * MIB);
    give(take(30 * MIB));
    assert_int_equal(allocator_forget(w.a), 1);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    allocator_bury(w.a);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.mapped, 0);
}

#define OTHERS 40

static unsigned others;
static uint64_t other_block[OTHERS];

/* Another thread's claim, while the driver makes a chunk for the one before. */
static void another_claims(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_CREATE || after || others == OTHERS)
        return;
    assert_ptr_equal(device, &w.device);
    uint64_t *block = &other_block[others++];
    assert_int_equal(allocator_malloc(w.a, 2 * MIB + 512, block), 0);
}

static void claims_of_many_threads_at_once(enum fake_call failing)
{
    uint64_t block = 0;
    others = 0;
    world_remake(CONF, 512 * MIB);
    w.device.meanwhile = another_claims;
    if (failing != FAKE_CALLS)
        w.device.code[failing] = FAKE_INVALID;
    assert_int_equal(allocator_malloc(w.a, 2 * MIB + 512, &block), 0); /* else as a segment */
    assert_int_equal(others, OTHERS);
    w.device.meanwhile = NULL;
    assert_true(allocator_is_valid(w.a));
    for (int i = 0; i < OTHERS; i++)
        give(other_block[i]);
    give(block);
    assert_int_equal(CURRENT(allocated_bytes), 0);
    assert_true(allocator_is_valid(w.a));
}

static void many_threads_claim_at_once(void **state)
{
    (void)state;
    claims_of_many_threads_at_once(FAKE_CALLS);
}

static void many_claims_fail_at_once(void **state)
{
    (void)state;
    claims_of_many_threads_at_once(FAKE_ALLOW);
}

static void another_grows(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_ALLOW || after || others)
        return;
    assert_ptr_equal(device, &w.device);
    others = 1;
    other_block[0] = take(12 * MIB);
}

static void another_gives_back(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_ALLOW || after || others)
        return;
    assert_ptr_equal(device, &w.device);
    others = 1;
    domain_empty_cache(w.domain, 1);
}

/* While a peer is given access to all that is mapped, what is idle serves as ever; and no mapping
 * is taken down. */
static void peers_get_access_meanwhile(void **state)
{
    (void)state;
    for (int gives = 0; gives < 2; gives++) {
        world_remake(CONF, 64 * MIB);
        uint64_t block = take(8 * MIB);
        give(block);
        others = 0;
        w.device.meanwhile = gives ? another_gives_back : another_grows;
        domain_allow(w.domain, w.a->ordinal);
        w.device.meanwhile = NULL;
        assert_true(allocator_is_valid(w.a));
        assert_int_equal(w.device.mapped, gives ? 4 : 6);
        if (!gives) {
            assert_int_equal(other_block[0], block);
            give(block);
        }
        domain_empty_cache(w.domain, 1);
        assert_int_equal(w.device.used, 0);
        assert_int_equal(w.device.mapped, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(idle_memory_serves_where_no_hole_does, setup),
        cmocka_unit_test_setup(one_request_can_have_all_that_is_idle, setup),
        cmocka_unit_test_setup(what_is_not_there_is_not_tried, setup),
        cmocka_unit_test_setup(what_repeats_asks_no_driver, setup),
        cmocka_unit_test_setup(reserved_is_the_sum_and_no_more, setup),
        cmocka_unit_test_setup(all_of_it_can_be_given_back, setup),
        cmocka_unit_test_setup(pinned_memory_is_the_drivers_again, setup),
        cmocka_unit_test_setup(idle_chunks_above_the_threshold_go, setup),
        cmocka_unit_test_setup(what_lies_idle_goes_back, setup),
        cmocka_unit_test_setup(what_the_last_period_needed_stays, setup),
        cmocka_unit_test_setup(long_steps_keep_their_memory, setup),
        cmocka_unit_test_setup(what_only_merges_counts_as_idle, setup),
        cmocka_unit_test_setup(memory_in_use_stays, setup),
        cmocka_unit_test_setup(whatever_fails_the_books_are_right, setup),
        cmocka_unit_test_setup(many_threads_claim_at_once, setup),
        cmocka_unit_test_setup(many_claims_fail_at_once, setup),
        cmocka_unit_test_setup(peers_get_access_meanwhile, setup),
        cmocka_unit_test_setup(without_it_there_are_segments, setup),
        cmocka_unit_test_setup(a_context_that_ends_leaves_nothing, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
