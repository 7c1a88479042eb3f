/* Small blocks and large ones lie in one arena: what is idle is there for both. */
#include "world.h"

#include "allocator/state/domain.h"
#include "allocator/share.h"

#define CONF "expandable_segments:True,large_segment_size_mb:2"

static int setup(void **state)
{
    (void)state;
    world_remake(CONF, 64 * MIB);
    return 0;
}

/* A chunk that is mapped in several slots, one of which the driver does not take down: it is there
 * for all of them again. */
static void what_is_not_taken_down_serves_again(void **state)
{
    (void)state;
    for (unsigned failing = 1; failing < 5; failing++) {
        world_remake(CONF, 64 * MIB);
        uint64_t first = take(4 * MIB);
        take(2 * MIB);
        give(first);
        give(take(8 * MIB)); /* of four chunks, two of which go home */
        w.device.failing = FAKE_UNMAP;
        w.device.failing_number = w.device.calls[FAKE_UNMAP] + failing;
        domain_empty_cache(w.domain, 1);
        w.device.failing_number = 0;
        for (unsigned i = 0; i < 3; i++) {
            uint64_t one = take(4 * MIB), other = take(8 * MIB);
            assert_int_equal(CURRENT(active_bytes), 14 * MIB);
            assert_int_equal(w.device.used, 14 * MIB);
            give(i % 2 ? one : other);
            give(i % 2 ? other : one);
        }
        domain_empty_cache(w.domain, 1);
        assert_int_equal(w.device.used, 2 * MIB);
    }
}

/* What is idle is there for blocks of both pools, and is booked as that of the one it is lent to. */
static void both_pools_share_what_is_idle(void **state)
{
    (void)state;
    uint64_t large = take(64 * MIB), small[160];
    give(large);
    uint64_t made = w.device.calls[FAKE_CREATE];
    for (unsigned i = 0; i < 160; i++)
        small[i] = take(MIB / 4);
    assert_int_equal(CURRENT_IN(reserved_bytes, SMALL_POOL), 40 * MIB);
    assert_int_equal(CURRENT_IN(reserved_bytes, LARGE_POOL), 24 * MIB);
    assert_int_equal(CURRENT_IN(segment, SMALL_POOL), 20);
    for (unsigned i = 0; i < 160; i++)
        give(small[i]);
    assert_int_equal(CURRENT_IN(reserved_bytes, SMALL_POOL), 40 * MIB); /* at home there now */
    assert_int_equal(take(64 * MIB), large);
    assert_int_equal(CURRENT_IN(reserved_bytes, SMALL_POOL), 0);
    assert_int_equal(CURRENT(reserved_bytes), 64 * MIB);
    uint64_t maps = w.device.calls[FAKE_MAP];
    for (unsigned i = 0; i < 4; i++) { /* from here on each finds its mappings where it left them */
        give(large);
        for (unsigned k = 0; k < 160; k++)
            small[k] = take(MIB / 4);
        for (unsigned k = 0; k < 160; k++)
            give(small[k]);
        assert_int_equal(take(64 * MIB), large);
    }
    assert_int_equal(w.device.calls[FAKE_MAP], maps);
    assert_int_equal(w.device.calls[FAKE_CREATE], made);
    assert_int_equal(w.device.used, 64 * MIB);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 0);
}

static uint64_t beside;

static void pin_what_lies_beside(struct fake_device *device, enum fake_call call, int after)
{
    struct block_place place;
    if (call != FAKE_MAP || after)
        return;
    device->meanwhile = NULL;
    assert_int_equal(domain_mark(w.domain, beside, BLOCK_PINNED, &place), 0);
}

/* While a block is made that shares a chunk with another one, that is pinned: the new one may be in no
 * thread's cache, from where it would be handed out again. failing: nor may it come to nothing. */
static void a_block_is_pinned_while_it_is_made(void **state)
{
    (void)state;
    for (int failing = 0; failing < 2; failing++) {
        uint64_t address = 0;
        world_remake(CONF, 64 * MIB);
        beside = take(MIB);
        take(512 * KIB);
        w.device.meanwhile = pin_what_lies_beside;
        w.device.code[FAKE_ALLOW] = failing ? FAKE_INVALID : 0;
        int code = allocator_malloc(w.a, MIB, &address);
        w.device.code[FAKE_ALLOW] = 0;
        assert_null(w.device.meanwhile);
        if (code == 0) {
            const struct block *made = domain_block_at(w.domain, address);
            assert_true(made->pinned == !failing);
            assert_int_equal(block_claimed(made), failing ? CLAIM_EASY : CLAIM_HELD);
            give(address);
        }
        give(beside);
        domain_empty_cache(w.domain, 1);
        assert_int_equal(CURRENT(reserved_bytes), 2 * MIB);
    }
}

/* The driver gives no access to what it has mapped, and does not take it down: nobody has that, and it
 * is there until the context ends. */
static void what_is_mapped_without_access_stays(void **state)
{
    (void)state;
    uint64_t first = take(4 * MIB), address = 0;
    w.device.code[FAKE_ALLOW] = w.device.code[FAKE_UNMAP] = FAKE_INVALID;
    allocator_malloc(w.a, 10 * MIB, &address);
    w.device.code[FAKE_ALLOW] = w.device.code[FAKE_UNMAP] = 0;
    give(first);
    if (address)
        give(address);
    domain_empty_cache(w.domain, 1);
    give(take(20 * MIB));
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), w.device.used);
    allocator_forget(w.a);
    allocator_bury(w.a);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.mapped, 0);
}

/* Among large blocks the lower of two holes serves, so that memory further up becomes idle as a whole, except when
 * the upper one leaves hardly anything over. Among blocks that lie apart the smaller hole serves. */
static void the_lower_hole_serves(void **state)
{
    (void)state;
    const uint64_t units[] = {64 * KIB, 272 * KIB, 2 * MIB};
    for (unsigned i = 0; i < 3; i++) {
        uint64_t unit = units[i];
        world_remake(CONF, 64 * MIB);
        uint64_t lower = take(4 * unit), between = take(i ? 2 * MIB : unit), upper = take(3 * unit);
        take(unit);
        assert_true(lower < between && between < upper);
        give(lower);
        give(upper);
        uint64_t first = take(2 * unit);
        assert_int_equal(first, i ? lower : upper);
        give(first);
        assert_int_equal(take(3 * unit),
                         i == 2 ? lower : upper); /* of whole chunks nothing is lost */
    }
}

/* Blocks of more than a quarter of a MiB share chunks with large ones, though they are booked as PyTorch books
 * them; but not where large ones share none. */
static void blocks_of_the_small_pool_fill_holes_of_large_ones(void **state)
{
    (void)state;
    uint64_t large = take(MIB + 512 * KIB), next = take(512 * KIB), apart = take(256 * KIB);
    assert_int_equal(next, large + MIB + 512 * KIB);
    assert_true(apart > next + 2 * MIB);
    assert_int_equal(w.device.used, 4 * MIB);
    assert_int_equal(CURRENT_IN(allocated_bytes, SMALL_POOL), 768 * KIB);
    assert_int_equal(CURRENT_IN(allocated_bytes, LARGE_POOL), MIB + 512 * KIB);
    give(next);
    assert_int_equal(CURRENT_IN(allocated_bytes, SMALL_POOL), 256 * KIB);
    give(take(32 * MIB)); /* a new size as large: chunks are not shared from now on */
    assert_true(take(512 * KIB) > apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(both_pools_share_what_is_idle, setup),
        cmocka_unit_test(the_lower_hole_serves),
        cmocka_unit_test_setup(blocks_of_the_small_pool_fill_holes_of_large_ones, setup),
        cmocka_unit_test_setup(what_is_not_taken_down_serves_again, setup),
        cmocka_unit_test_setup(a_block_is_pinned_while_it_is_made, setup),
        cmocka_unit_test_setup(what_is_mapped_without_access_stays, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
