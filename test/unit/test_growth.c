/* When nothing fits: the order in which memory is looked for, limits, giving back, and running out.
 */
#include "world.h"

static void an_idle_segment_is_given_back_before_running_out(void **state)
{
    (void)state;
    world_remake("", 60 * MIB);
    uint64_t block[3];
    for (int i = 0; i < 3; i++)
        block[i] = take(20 * MIB);
    for (int i = 0; i < 3; i++)
        give(block[i]);
    take(40 * MIB); /* two of the three are enough */
    assert_int_equal(w.device.calls[FAKE_FREE], 2);
    assert_int_equal(COUNTER(num_device_free), 2);
    assert_int_equal(COUNTER(num_alloc_retries), 0);
    assert_int_equal(take(20 * MIB), block[2]); /* the one idle for the shortest time stayed */
}

static void all_are_given_back_before_the_last_try(void **state)
{
    (void)state;
    world_remake("", 46 * MIB);
    uint64_t block[3] = {take(20 * MIB), take(12 * MIB), take(512)};
    for (int i = 0; i < 3; i++)
        give(block[i]);
    w.device.failing_alloc = 5; /* fragmented: the try after giving back enough fails too */
    take(22 * MIB);
    assert_int_equal(w.device.calls[FAKE_FREE], 3);
    assert_int_equal(COUNTER(num_alloc_retries), 1);
    assert_int_equal(COUNTER(num_ooms), 0);
    assert_int_equal(CURRENT(reserved_bytes), 22 * MIB);
}

static void the_last_try_asks_for_no_more_than_is_needed(void **state)
{
    (void)state;
    world_remake("", 8 * MIB);
    take(3 * MIB);
    assert_int_equal(CURRENT(reserved_bytes), 4 * MIB);
    assert_int_equal(COUNTER(num_alloc_retries), 1);
    assert_int_equal(COUNTER(num_ooms), 0);
}

static void out_of_memory_loses_nothing(void **state)
{
    (void)state;
    world_remake("", 40 * MIB);
    uint64_t keep = take(20 * MIB), block = take(20 * MIB);
    give(block);
    assert_int_equal(try_take(30 * MIB), FAKE_OOM);
    assert_int_equal(COUNTER(num_ooms), 1);
    assert_int_equal(COUNTER(num_alloc_retries), 0); /* nothing goes back where that cannot help */
    assert_int_equal(CURRENT(allocated_bytes), 20 * MIB);
    assert_int_equal(CURRENT(reserved_bytes), 40 * MIB);
    assert_int_equal(w.device.used, 40 * MIB);
    take(20 * MIB);
    give(keep);
    assert_int_equal(take(20 * MIB), keep);
}

/* It keeps apart from large blocks only as long as there is memory for that. */
static void a_small_request_has_part_of_a_large_hole_rather_than_nothing(void **state)
{
    (void)state;
    world_remake("expandable_segments:False", 21 * MIB);
    uint64_t large = take(5 * MIB);
    uint64_t small = take(1000), next = take(MIB);
    assert_int_equal(small, large + 5 * MIB);
    assert_int_equal(next, small + 1024);
    assert_int_equal(w.device.used, 20 * MIB);
    assert_int_equal(CURRENT_IN(reserved_bytes, SMALL_POOL), 0);
    assert_int_equal(CURRENT_IN(allocated_bytes, SMALL_POOL), MIB + 1024); /* wherever they lie */
    assert_int_equal(COUNTER(num_ooms), 0);
    take(14 * MIB - 1024);
    assert_int_equal(try_take(1), FAKE_OOM);
    give(small);
    assert_int_equal(take(512), small);
    assert_int_equal(take(512), small + 512);
    assert_int_equal(try_take(1), FAKE_OOM);
}

/* Nor is the driver asked each time, until it has given or got back something. */
static void the_next_small_request_has_it_at_once(void **state)
{
    (void)state;
    world_remake("expandable_segments:False", 41 * MIB);
    uint64_t large = take(5 * MIB), other = take(20 * MIB);
    give(take(512));
    uint64_t asked = w.device.calls[FAKE_ALLOC], retries = COUNTER(num_alloc_retries);
    for (int i = 0; i < 100; i++)
        take(1024);
    assert_int_equal(w.device.calls[FAKE_ALLOC], asked);
    assert_int_equal(COUNTER(num_alloc_retries), retries);
    for (int i = 100; i < 2000; i++)
        give(take(1024));
    assert_in_range(w.device.calls[FAKE_ALLOC], asked + 1, asked + 3); /* now and then */
    give(other);
    assert_int_equal(domain_empty_cache(w.domain, 0), 20 * MIB);
    assert_false(take(1024) - large < 20 * MIB);
}

/* For what natively it had waited for it waits, rather than cut what others may need. */
static void a_small_request_waits_for_what_its_thread_has_freed(void **state)
{
    uint64_t block[4];
    (void)state;
    world_remake("expandable_segments:False", 24 * MIB);
    for (int i = 0; i < 4; i++)
        block[i] = take(MIB);
    take(9 * MIB);
    for (int round = 0; round < 2; round++) { /* the second is cornered */
        w.device.instant = 0;
        for (int i = 0; i < 4; i++)
            give(block[i]);
        for (int i = 0; i < 4; i++)
            block[i] = take(MIB);
        w.device.instant = 1;
        pass_all();
        give(take(9 * MIB + MIB / 2));
        take(512);
    }
    assert_int_equal(COUNTER(num_ooms), 0);
}

/* Of a segment that cannot be given back now, too, however large it is; and nothing is waited for. */
static void a_small_request_does_not_wait_for_memory_beside_a_hole(void **state)
{
    (void)state;
    world_remake("expandable_segments:False", 33 * MIB);
    uint64_t small = take(MIB), large = take(30 * MIB);
    take(MIB);
    give(large);
    w.device.instant = 0;
    w.device.stuck = 1;
    fake_call_as(7);
    give(small); /* another thread's free is pending */
    fake_call_as(0);
    assert_int_equal(take(1000), large);
    assert_in_range(w.device.last_timeout, 0, 1000000); /* ns */
    assert_int_equal(w.device.calls[FAKE_FREE], 0);
}

/* Small blocks among large ones take what they take natively. */
static void what_would_fit_natively_counts_small_blocks_as_such(void **state)
{
    (void)state;
    world_remake("expandable_segments:False", 20 * MIB);
    take(5 * MIB);
    for (int i = 0; i < 100; i++)
        take(1024);
    assert_int_equal(w.device.used, 20 * MIB);
    assert_true(allocator_fits_natively(w.a, 12 * MIB, 0));
    assert_false(allocator_fits_natively(w.a, 14 * MIB, 0));
}

static void a_miss_is_no_out_of_memory(void **state)
{
    uint64_t address;
    (void)state;
    assert_int_equal(hit(512, &address), ALLOCATOR_MISS);
    assert_int_equal(COUNTER(num_ooms), 0);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 0);
}

/* The driver's free waits for all work; a malloc must not. */
static void nothing_is_given_back_while_the_device_works(void **state)
{
    (void)state;
    world_remake("", 40 * MIB);
    uint64_t block = take(20 * MIB);
    give(block);
    w.device.instant = 0;
    w.device.stuck = 1;
    assert_int_equal(try_take(40 * MIB), FAKE_OOM);
    assert_int_equal(w.device.calls[FAKE_FREE], 0);
    assert_int_equal(domain_empty_cache(w.domain, 1), 0);
    assert_int_equal(take(20 * MIB), block);
}

static void another_error_of_the_driver_is_passed_on(void **state)
{
    (void)state;
    give(take(20 * MIB));
    w.device.code[FAKE_ALLOC] = 700;
    assert_int_equal(try_take(30 * MIB), 700);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 2);
    assert_int_equal(w.device.calls[FAKE_FREE], 0);
    assert_int_equal(COUNTER(num_ooms), 0);
}

static void the_limit_holds_to_the_byte(void **state)
{
    (void)state;
    world_remake("memory_limit_mb:40", GIB);
    assert_int_equal(COUNTER(memory_limit_bytes), 40 * MIB);
    take(20 * MIB);
    uint64_t last = take(20 * MIB);
    uint64_t asked = w.device.calls[FAKE_ALLOC];
    assert_int_equal(try_take(512), FAKE_OOM);
    assert_int_equal(w.device.calls[FAKE_ALLOC], asked); /* the driver is not asked beyond it */
    give(last);
    take(512); /* giving the idle one back makes room */
    assert_int_equal(CURRENT(reserved_bytes), 22 * MIB);
}

static void a_fraction_is_a_limit(void **state)
{
    (void)state;
    world_remake("per_process_memory_fraction:0.5", 80 * MIB);
    take(20 * MIB);
    take(20 * MIB);
    assert_int_equal(try_take(20 * MIB), FAKE_OOM);
}

/* Two contexts on one device share its limit. */
static void contexts_of_one_device_share_its_limit(void **state)
{
    uint64_t address;
    (void)state;
    world_remake("memory_limit_mb:40", GIB);
    struct allocator *second = world_add(&w.device, NULL);
    take(20 * MIB);
    assert_int_equal(allocator_malloc(second, 20 * MIB, &address), 0);
    assert_int_equal(allocator_malloc(second, 20 * MIB, &address), FAKE_OOM);
    assert_int_equal(try_take(20 * MIB), FAKE_OOM);
}

/* PyTorch's rule: above the threshold, whole large segments idle for longer than the average go
 * first. */
static void garbage_is_collected_by_age(void **state)
{
    uint64_t block[6];
    (void)state;
    world_remake("garbage_collection_threshold:0.5,memory_limit_mb:204", GIB);
    for (int i = 0; i < 6; i++)
        block[i] = take(20 * MIB);
    give(take(512)); /* small segments are not collected */
    give(block[4]);
    for (int i = 0; i < 10; i++)
        give(take(512));
    give(block[1]);
    take(30 * MIB); /* 122 MiB reserved, 102 are to be kept: the older of the two is enough */
    assert_int_equal(w.device.calls[FAKE_FREE], 1);
    assert_int_equal(fake_segment(block[4]), 0);
    assert_int_equal(take(20 * MIB), block[1]);
    assert_int_equal(CURRENT_IN(reserved_bytes, SMALL_POOL), 2 * MIB);
    give(block[1]);
    give(block[0]);
    take(40 * MIB); /* 132 MiB reserved: one is not enough */
    assert_int_equal(w.device.calls[FAKE_FREE], 3);
    assert_int_equal(CURRENT_IN(segment, SMALL_POOL), 1);
}

/* The device is not asked whether it is idle if there is nothing to collect. */
static void small_segments_are_no_garbage(void **state)
{
    uint64_t block[10];
    (void)state;
    world_remake("garbage_collection_threshold:0.1,memory_limit_mb:204", GIB);
    for (int i = 0; i < 10; i++)
        block[i] = take(MIB); /* two to a segment */
    for (int i = 0; i < 10; i++)
        give(block[i]);
    uint64_t records = w.device.calls[FAKE_RECORD];
    take(20 * MIB);
    assert_int_equal(w.device.calls[FAKE_RECORD], records);
    assert_int_equal(CURRENT_IN(segment, SMALL_POOL), 5);
}

static void below_the_threshold_nothing_is_collected(void **state)
{
    (void)state;
    world_remake("garbage_collection_threshold:0.9,memory_limit_mb:200", GIB);
    uint64_t block = take(20 * MIB);
    give(block);
    take(40 * MIB);
    assert_int_equal(w.device.calls[FAKE_FREE], 0);
    assert_int_equal(take(20 * MIB), block);
}

static void emptying_gives_back_whole_segments_only(void **state)
{
    (void)state;
    uint64_t keep = take(5 * MIB), small = take(512), whole = take(30 * MIB);
    give(small);
    give(whole);
    assert_int_equal(domain_empty_cache(w.domain, 0), 32 * MIB);
    assert_int_equal(CURRENT(reserved_bytes), 20 * MIB);
    assert_int_equal(w.device.used, 20 * MIB);
    give(keep);
    assert_int_equal(domain_empty_cache(w.domain, 0), 20 * MIB);
    assert_int_equal(w.device.used, 0);
}

/* Asked to wait, it also takes what was pending. */
static void pass_on_wait(struct fake_device *device, enum fake_call call, int after)
{
    if (call == FAKE_WAIT && !after)
        device->instant = 1;
}

static void emptying_waits_if_asked(void **state)
{
    (void)state;
    w.device.instant = 0;
    give(take(30 * MIB));
    w.device.stuck = 1;
    assert_int_equal(domain_empty_cache(w.domain, 0), 0);
    w.device.stuck = 0;
    w.device.meanwhile = pass_on_wait;
    assert_int_equal(domain_empty_cache(w.domain, 1), 30 * MIB);
}

/* The context is destroyed while we ask the driver for more. */
static void forget_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_ALLOC || after)
        return;
    device->meanwhile = NULL;
    assert_int_equal(allocator_forget(w.a), 1);
}

static void a_context_that_goes_while_growing(void **state)
{
    (void)state;
    take(512);
    w.device.meanwhile = forget_meanwhile;
    assert_int_equal(try_take(20 * MIB), ALLOCATOR_PASS);
    assert_int_equal(CURRENT(reserved_bytes), 0);
}

static void a_segment_that_the_driver_will_not_take_back(void **state)
{
    (void)state;
    world_remake("", 40 * MIB);
    uint64_t block = take(20 * MIB);
    give(block);
    w.device.code[FAKE_FREE] = 1;
    assert_int_equal(domain_empty_cache(w.domain, 0), 0);
    assert_int_equal(CURRENT(reserved_bytes), 20 * MIB); /* is still ours */
    assert_int_equal(COUNTER(num_device_free), 0);
    assert_int_equal(take(20 * MIB), block);
    give(block);
    w.device.code[FAKE_FREE] = 0;
    assert_int_equal(domain_empty_cache(w.domain, 0), 20 * MIB);
    assert_int_equal(CURRENT(reserved_bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(an_idle_segment_is_given_back_before_running_out),
        RULE(all_are_given_back_before_the_last_try),
        RULE(the_last_try_asks_for_no_more_than_is_needed),
        RULE(out_of_memory_loses_nothing),
        RULE(a_small_request_has_part_of_a_large_hole_rather_than_nothing),
        RULE(the_next_small_request_has_it_at_once),
        RULE(a_small_request_waits_for_what_its_thread_has_freed),
        RULE(a_small_request_does_not_wait_for_memory_beside_a_hole),
        RULE(what_would_fit_natively_counts_small_blocks_as_such),
        RULE(a_miss_is_no_out_of_memory),
        RULE(nothing_is_given_back_while_the_device_works),
        RULE(another_error_of_the_driver_is_passed_on),
        RULE(the_limit_holds_to_the_byte),
        RULE(a_fraction_is_a_limit),
        RULE(contexts_of_one_device_share_its_limit),
        RULE(garbage_is_collected_by_age),
        RULE(small_segments_are_no_garbage),
        RULE(below_the_threshold_nothing_is_collected),
        RULE(emptying_gives_back_whole_segments_only),
        RULE(emptying_waits_if_asked),
        RULE(a_context_that_goes_while_growing),
        RULE(a_segment_that_the_driver_will_not_take_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
