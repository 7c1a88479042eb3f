/* Frees of what is not ours or not held, contexts that go, several contexts, and the cache switched
 * off. */
#include "world.h"

#include <string.h>

#include "allocator/state/domain.h"

static void a_second_free_is_invalid(void **state)
{
    (void)state;
    uint64_t block = take(1000);
    give(block);
    assert_int_equal(try_give(block), ALLOCATOR_INVALID);
    assert_int_equal(COUNTER(num_double_frees), 1);
    w.device.instant = 0;
    block = take(1000);
    give(block); /* pending now */
    assert_int_equal(try_give(block), ALLOCATOR_INVALID);
    assert_int_equal(CURRENT(allocation), 0);
}

static void an_address_inside_a_block_is_invalid(void **state)
{
    (void)state;
    uint64_t block = take(4096);
    assert_int_equal(try_give(block + 512), ALLOCATOR_INVALID);
    assert_int_equal(try_give(block + 1), ALLOCATOR_INVALID);
    assert_int_equal(try_give(block + 2 * MIB - 1), ALLOCATOR_INVALID);
    assert_int_equal(CURRENT(allocation), 1);
    give(block);
}

static void foreign_memory_is_unknown(void **state)
{
    (void)state;
    assert_int_equal(try_give(0x1000), ALLOCATOR_UNKNOWN);
    uint64_t block = take(4096);
    assert_int_equal(try_give(block - 1), ALLOCATOR_UNKNOWN);
    assert_int_equal(try_give(block + 2 * MIB), ALLOCATOR_UNKNOWN);
    assert_int_equal(try_give(0), ALLOCATOR_UNKNOWN);
    assert_int_equal(try_give(UINT64_MAX), ALLOCATOR_UNKNOWN);
    assert_int_equal(COUNTER(num_double_frees), 0);
}

static void memory_given_back_is_unknown_again(void **state)
{
    (void)state;
    uint64_t block = take(20 * MIB);
    give(block);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(try_give(block), ALLOCATOR_UNKNOWN);
}

/* Natively it is free when the call returns, so a native call that finds no room gets it. */
static void what_was_freed_during_a_capture_is_given_back(void **state)
{
    (void)state;
    w.device.code[FAKE_RECORD] = DEVICE_DEFERRED;
    give(take(20 * MIB));
    assert_int_equal(domain_empty_cache(w.domain, 0), 0); /* without a wait */
    assert_int_equal(domain_empty_cache(w.domain, 1), 20 * MIB);
}

static void a_block_is_found_whoever_is_current(void **state)
{
    struct fake_device device;
    struct device_stats stats;
    uint64_t address;
    (void)state;
    memset(&stats, 0, sizeof stats);
    fake_init(&device, GIB);
    struct allocator *second = world_add(&device, &stats);
    assert_int_equal(allocator_malloc(second, 512, &address), 0);
    assert_int_equal(stats_current_all(&stats, STAT_allocation), 1);
    assert_int_equal(CURRENT(allocation), 0);
    give(address);
    assert_int_equal(stats_current_all(&stats, STAT_allocation), 0);
    assert_int_equal(device.calls[FAKE_RECORD], 1);
    assert_int_equal(w.device.calls[FAKE_RECORD], 0);
    assert_true(allocator_is_valid(second));
}

static void contexts_do_not_share_blocks(void **state)
{
    struct fake_device device;
    uint64_t address;
    (void)state;
    fake_init(&device, GIB);
    device.instant = 1;
    struct allocator *second = world_add(&device, NULL); /* of the same device: one row */
    uint64_t block = take(20 * MIB);
    give(block);
    assert_int_equal(allocator_malloc(second, 20 * MIB, &address), 0);
    assert_int_not_equal(address, block);
    assert_int_equal(CURRENT(reserved_bytes), 40 * MIB);
    assert_int_equal(CURRENT(allocated_bytes), 20 * MIB);
    assert_int_equal(allocator_forget(second), 1);
    assert_int_equal(CURRENT(reserved_bytes), 20 * MIB);
    assert_int_equal(take(20 * MIB), block);
}

static void a_context_that_goes_takes_its_blocks_along(void **state)
{
    (void)state;
    w.device.instant = 0;
    uint64_t live = take(512), second = take(5 * MIB), pending = take(700),
             reusable = take(30 * MIB);
    give(reusable);
    pass_all();
    domain_poll(w.domain);
    give(pending);
    uint64_t calls[FAKE_CALLS];
    memcpy(calls, w.device.calls, sizeof calls);
    assert_int_equal(allocator_forget(w.a), 2);
    assert_memory_equal(calls, w.device.calls, sizeof calls); /* no driver call */
    static const enum stat_kind kinds[] = {
        STAT_allocation,     STAT_allocated_bytes, STAT_requested_bytes,
        STAT_active,         STAT_active_bytes,    STAT_segment,
        STAT_reserved_bytes, STAT_inactive_split,  STAT_inactive_split_bytes};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_int_equal(stats_current_all(&w.stats, kinds[i]), 0);
    assert_int_equal(COUNTER(reusable_bytes), 0);
    assert_int_equal(COUNTER(largest_allocatable_bytes), 0);
    assert_int_equal(domain_free(w.domain, live, FREED_NATIVE), ALLOCATOR_UNKNOWN);
    assert_int_equal(domain_free(w.domain, second, FREED_NATIVE), ALLOCATOR_UNKNOWN);
    uint64_t address;
    assert_int_equal(allocator_malloc(w.a, 512, &address), ALLOCATOR_PASS);
    assert_int_equal(allocator_hit(w.a, 512, &address), ALLOCATOR_PASS);
    struct allocator *next = world_add(&w.device, NULL);
    w.device.instant = 1;
    assert_int_equal(allocator_malloc(next, 512, &address), 0);
}

/* The context is destroyed by another thread while a free is being recorded, or waited for. */
static void forget_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    if (!after && (call == FAKE_RECORD || call == FAKE_SYNC)) {
        device->meanwhile = NULL;
        allocator_forget(w.a);
    }
}

static void a_context_that_goes_during_a_free(void **state)
{
    static const char *const conf[] = {"free_mode:fence", "free_mode:strict"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        world_remake(conf[i], GIB);
        uint64_t block = take(512);
        w.device.meanwhile = forget_meanwhile;
        assert_int_equal(try_give(block), 0);
        assert_int_equal(CURRENT(active_bytes), 0);
        assert_int_equal(CURRENT(reserved_bytes), 0);
        domain_poll(w.domain);
        domain_captures_ended(w.domain);
        assert_int_equal(domain_empty_cache(w.domain, 1), 0);
    }
}

static void without_cache_every_call_is_native(void **state)
{
    (void)state;
    world_remake("cache:off", GIB);
    uint64_t block = take(1000), second = take(1000);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 2);
    assert_int_equal(w.device.alloc_bytes, 1000); /* exactly what was asked for */
    assert_int_equal(CURRENT(allocated_bytes), 2000);
    assert_int_equal(CURRENT(reserved_bytes), 2000);
    give(block);
    assert_int_equal(w.device.calls[FAKE_FREE], 1);
    assert_int_equal(CURRENT(reserved_bytes), 1000);
    assert_int_equal(COUNTER(num_hits), 0);
    assert_int_equal(hit(1000, &block), ALLOCATOR_MISS);
    give(second);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    assert_int_equal(PEAK(allocated_bytes), 2000);
    assert_int_equal(CURRENT(active_bytes), 0);
    w.device.failing_alloc = 3;
    assert_int_equal(try_take(1000), FAKE_OOM);
    assert_int_equal(COUNTER(num_ooms), 1);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(a_second_free_is_invalid),
        RULE(an_address_inside_a_block_is_invalid),
        RULE(foreign_memory_is_unknown),
        RULE(memory_given_back_is_unknown_again),
        RULE(what_was_freed_during_a_capture_is_given_back),
        RULE(a_block_is_found_whoever_is_current),
        RULE(contexts_do_not_share_blocks),
        RULE(a_context_that_goes_takes_its_blocks_along),
        RULE(a_context_that_goes_during_a_free),
        RULE(without_cache_every_call_is_native),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
