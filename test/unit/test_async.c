/* Frees that natively wait for nothing (cuMemFreeAsync of a block of ours). */
#include "allocator/state/domain.h"
#include "world.h"

#define BLOCK (10 * MIB) /* a segment of its own: reuse shows as the same address */

static void give_async(uint64_t block)
{
    assert_int_equal(domain_free(w.domain, block, FREED_ASYNC), 0);
    assert_true(allocator_is_valid(w.a));
}

/* Such a free never waits itself, and nobody waits for it without limit. */
static void an_async_free_is_waited_for_with_a_limit(void **state)
{
    static const char *const options[] = {"", "free_mode:strict"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        world_remake(options[i], BLOCK);
        w.device.instant = 0;
        w.device.stuck = 1; /* waiting without limit fails */
        uint64_t block = take(BLOCK);
        give_async(block);
        assert_int_equal(w.device.calls[FAKE_SYNC], 0);
        assert_int_equal(w.device.calls[FAKE_RECORD], 1);
        fake_advance(UINT64_C(1000000000));
        assert_int_equal(try_take(BLOCK), FAKE_OOM);
        pass_all();
        assert_int_equal(take(BLOCK), block);
    }
}

/* Without events it goes along with the next free that waits. */
static void an_async_free_without_a_mark(void **state)
{
    static const int codes[] = {DEVICE_UNSUPPORTED, 999};
    (void)state;
    for (int i = 0; i < 2; i++) {
        world_remake("", UINT64_MAX);
        uint64_t block = take(BLOCK), second = take(BLOCK);
        w.device.code[FAKE_RECORD] = codes[i];
        give_async(block);
        assert_int_equal(w.device.calls[FAKE_SYNC], 0);
        assert_int_equal(CURRENT(active), 2);
        give(second);
        assert_int_equal(w.device.calls[FAKE_SYNC], 1);
        assert_int_equal(CURRENT(active), 0);
    }
}

static void an_async_free_shows_that_the_context_is_broken(void **state)
{
    (void)state;
    uint64_t block = take(BLOCK);
    w.device.code[FAKE_RECORD] = w.device.code[FAKE_SYNC] = FAKE_BROKEN;
    assert_int_equal(domain_free(w.domain, block, FREED_ASYNC), FAKE_BROKEN);
    assert_int_equal(try_take(BLOCK), ALLOCATOR_PASS);
}

/* Counting only, an async free is the driver's too. */
static void an_async_free_with_the_cache_off(void **state)
{
    (void)state;
    world_remake("cache:off", UINT64_MAX);
    uint64_t block = take(BLOCK);
    assert_int_equal(domain_free(w.domain, block, FREED_ASYNC), ALLOCATOR_PASS);
    assert_int_equal(w.device.calls[FAKE_FREE], 0);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    assert_true(allocator_is_valid(w.a));
    assert_int_equal(domain_free(w.domain, block, FREED_ASYNC), ALLOCATOR_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(an_async_free_is_waited_for_with_a_limit),
        RULE(an_async_free_without_a_mark),
        RULE(an_async_free_shows_that_the_context_is_broken),
        RULE(an_async_free_with_the_cache_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
