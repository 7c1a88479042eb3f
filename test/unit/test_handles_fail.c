/* Handles of several chunks where the driver refuses something, another thread is at it, too, or the
 * context ends. */
#include "handle_world.h"

static void what_stays_mapped_goes_back_later(void **state)
{
    (void)state;
    for (uint64_t call = 1; call < 4; call++) {
        handle_world_setup(NULL);
        make_room();
        give(take(2 * BLOCK));
        give(take(BLOCK));
        w.device.failing = FAKE_UNMAP;
        w.device.failing_number = CALLS(UNMAP) + call;
        domain_empty_cache(w.domain, 1);
        domain_empty_cache(w.domain, 1);
        assert_int_equal(CURRENT(reserved_bytes), 4 * MIB);
        assert_int_equal(w.device.used, 4 * MIB);
        assert_int_equal(w.device.mapped, 1);
    }
}

/* Whatever call the driver refuses: the request is served otherwise, or fails, and nothing is lost. */
static void what_the_driver_refuses_costs_nothing(void **state)
{
    const enum fake_call calls[] = {FAKE_CREATE, FAKE_MAP, FAKE_ALLOW, FAKE_UNMAP, FAKE_RELEASE};
    int refused = 0;
    (void)state;
    for (unsigned i = 0; i < 2 * sizeof calls / sizeof *calls; i++)
        for (uint64_t call = 1; call < 5; call++) {
            (i % 2 ? handle_world_setup : handle_world_alone)(NULL);
            make_room();
            give(take(2 * BLOCK));
            uint64_t first = take(BLOCK), block[2] = {0};
            w.device.failing = calls[i / 2];
            w.device.failing_number = w.device.calls[calls[i / 2]] + call;
            int code[2] = {allocator_malloc(w.a, second + 2 * MIB, &block[0]),
                           allocator_malloc(w.a, 3 * BLOCK, &block[1])};
            refused += w.device.calls[calls[i / 2]] >= w.device.failing_number;
            w.device.failing_number = 0;
            assert_true(w.device.used >= CURRENT(reserved_bytes));
            give(first);
            give(between);
            for (unsigned k = 0; k < 2; k++)
                if (code[k] == 0)
                    give(block[k]);
            domain_empty_cache(w.domain, 1);
            assert_all_goes_back();
        }
    assert_true(refused > 20);
}

/* A handle that another thread has taken down in part is nobody's meanwhile. */
static uint64_t others_block;

static void another_takes(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_UNMAP || after || others_block)
        return;
    assert_ptr_equal(device, &w.device);
    others_block = 1;
    others_block = take(BLOCK - 64 * MIB);
}

static void two_threads_claim_at_once(void **state)
{
    (void)state;
    make_room();
    give(take(2 * BLOCK));
    take(BLOCK);
    others_block = 0;
    w.device.meanwhile = another_takes;
    uint64_t mine = take(second + 2 * MIB);
    w.device.meanwhile = NULL;
    assert_true(others_block > 1);
    assert_true(mine + second + 2 * MIB <= others_block || others_block + BLOCK - 64 * MIB <= mine);
    assert_int_equal(w.device.used, CURRENT(reserved_bytes));
}

static void a_context_that_ends_leaves_nothing(void **state)
{
    const enum fake_call calls[] = {FAKE_CREATE, FAKE_MAP, FAKE_ALLOW, FAKE_UNMAP};
    (void)state;
    for (unsigned i = 0; i < 2 * sizeof calls / sizeof *calls; i++) {
        (i % 2 ? handle_world_setup : handle_world_alone)(NULL);
        make_room();
        give(take(2 * BLOCK));
        take(BLOCK);
        end_context_at(calls[i / 2]);
        assert_int_equal(try_take(second + 2 * MIB), ALLOCATOR_PASS);
        assert_int_equal(CURRENT(reserved_bytes), 0);
        assert_int_equal(CURRENT(segment), 0);
        allocator_bury(w.a);
        assert_int_equal(w.device.used, 0);
        assert_int_equal(w.device.mapped, 0);
        assert_int_equal(w.device.ranges, 0);
    }
}

/* Before the first of the two runs that are to go is unmapped. */
static void a_context_that_ends_beside_a_release_leaves_nothing(void **state)
{
    (void)state;
    end_context_at(FAKE_UNMAP);
    make_room();
    domain_empty_cache(w.domain, 1);
    allocator_bury(w.a);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.mapped, 0);
    assert_int_equal(w.device.ranges, 0);
}

/* Another thread destroys the context, and the driver has ended it. */
static void end_for_good(struct fake_device *device)
{
    device->meanwhile = NULL;
    allocator_forget(w.a);
    allocator_bury(w.a);
}

static void the_context_ends_in_a_claim(struct fake_device *device, enum fake_call call, int after)
{
    if (call == FAKE_CREATE && !after && device->calls[FAKE_CREATE] >= 3)
        end_for_good(device);
}

/* A claim of many handles takes longer than the end of its context waits: its books must stay. */
static void a_claim_that_outlasts_its_context(void **state)
{
    (void)state;
    world_remake("expandable_segments:True", 64 * GIB);
    w.device.meanwhile = the_context_ends_in_a_claim;
    assert_int_equal(try_take(1152 * MIB), ALLOCATOR_PASS);
    assert_null(w.device.meanwhile);
    assert_int_equal(w.device.ranges, 1); /* nor its addresses given back under it */
}

static int waits;

static void the_context_ends_at_a_wait(struct fake_device *device, enum fake_call call, int after)
{
    if (call == FAKE_WAIT && !after && --waits == 0)
        end_for_good(device);
}

static void a_request_that_waits_in_it_is_the_drivers(void **state)
{
    (void)state;
    for (int nth = 1; nth < 4; nth++) {
        world_remake("expandable_segments:True", 512 * MIB);
        w.device.instant = 0;
        take(300 * MIB);
        uint64_t block = take(200 * MIB);
        fake_call_as(5);
        give(block); /* another thread's */
        fake_call_as(0);
        waits = nth;
        w.device.meanwhile = the_context_ends_at_a_wait;
        int code = try_take(210 * MIB);
        assert_true(waits > 0 ? code != 0 : code == ALLOCATOR_PASS);
        assert_int_equal(w.device.ranges, waits > 0); /* who waits uses nothing of it */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_stays_mapped_goes_back_later, handle_world_setup),
        cmocka_unit_test_setup(what_the_driver_refuses_costs_nothing, handle_world_setup),
        cmocka_unit_test_setup(two_threads_claim_at_once, handle_world_setup),
        cmocka_unit_test_setup(two_threads_claim_at_once, handle_world_alone),
        cmocka_unit_test_setup(a_context_that_ends_leaves_nothing, handle_world_setup),
        cmocka_unit_test_setup(a_context_that_ends_beside_a_release_leaves_nothing,
                               handle_world_setup),
        cmocka_unit_test_setup(a_context_that_ends_beside_a_release_leaves_nothing,
                               handle_world_alone),
        cmocka_unit_test_setup(a_claim_that_outlasts_its_context, handle_world_setup),
        cmocka_unit_test_setup(a_request_that_waits_in_it_is_the_drivers, handle_world_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
