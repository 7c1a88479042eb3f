/* Waiting for a fence: when it is better than growing, and for whose work it is never without a
 * limit. */
#include <stdio.h>

#include "allocator/reuse/fence.h"
#include "world.h"

#define BLOCK (10 * MIB) /* a segment of its own: reuse shows as the same address */

static void work_goes_on(void)
{
    w.device.instant = 0;
}

/* Waiting for a mark up to what growing would cost, and growing when that was in vain. */
static void pass_while_waiting(struct fake_device *device, enum fake_call call, int after)
{
    if (call == FAKE_WAIT && !after)
        device->passed = device->recorded;
}

static void a_short_wait_saves_growing(void **state)
{
    (void)state;
    work_goes_on();
    uint64_t block = take(BLOCK);
    give(block);
    w.device.meanwhile = pass_while_waiting;
    assert_int_equal(take(BLOCK), block);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 1);
    assert_int_equal(COUNTER(num_fence_waits), 1);
    assert_int_equal(COUNTER(num_hits), 1);
}

static void a_wait_in_vain_is_no_longer_than_growing(void **state)
{
    (void)state;
    work_goes_on();
    w.device.stuck = 1;
    give(take(BLOCK));
    uint64_t before = fake_clock();
    take(BLOCK);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 2);
    assert_in_range(fake_clock() - before, 1, 80000 + 10 * 900 + 100);
}

/* A device that is behind stays busy while the host waits: then waiting is always better. */
static void a_device_that_is_behind_is_waited_for(void **state)
{
    (void)state;
    work_goes_on();
    uint64_t block = take(BLOCK);
    give(block);
    fake_advance(UINT64_C(1000000));
    assert_int_equal(take(BLOCK), block);
    assert_true(w.device.last_timeout == DEVICE_FOREVER);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 1);
}

/* But for another thread's work only a little longer. */
static void even_then_with_a_limit_for_another_thread(void **state)
{
    (void)state;
    work_goes_on();
    w.device.stuck = 1;
    fake_call_as(1);
    uint64_t block = take(BLOCK);
    give(block);
    fake_advance(UINT64_C(1000000));
    fake_call_as(2);
    uint64_t before = fake_clock();
    take(BLOCK);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 2);
    assert_in_range(fake_clock() - before, 100000, UINT64_C(3000000));
}

static uint64_t held;

static void free_what_is_held(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_WAIT || after || !held || device->calls[FAKE_ALLOC] < 3)
        return;
    fake_call_as(1);
    give(held);
    held = 0;
    fake_call_as(2);
    device->instant = 1;
}

/* And who frees while another one makes room waits as natively: the driver frees faster then. */
static void while_room_is_made_a_free_waits(void **state)
{
    (void)state;
    world_remake("expandable_segments:False", 40 * MIB);
    work_goes_on();
    fake_call_as(1);
    uint64_t block = take(20 * MIB);
    held = take(20 * MIB);
    give(block);
    assert_int_equal(w.device.calls[FAKE_SYNC], 0);
    fake_call_as(2);
    w.device.meanwhile = free_what_is_held;
    assert_int_equal(try_take(20 * MIB), 0);
    w.device.meanwhile = NULL;
    assert_int_equal(held, 0);
    assert_int_equal(w.device.calls[FAKE_SYNC], 1);
}

static void out_of_memory_waits_for_our_own_free(void **state)
{
    (void)state;
    world_remake("", BLOCK);
    work_goes_on();
    uint64_t block = take(BLOCK);
    give(block);
    assert_int_equal(take(BLOCK), block);
    assert_true(w.device.last_timeout == DEVICE_FOREVER);
    assert_int_equal(COUNTER(num_ooms), 0);
}

/* Their work may wait for us: A launches a kernel that spins, B frees, A allocates, A ends the
 * kernel. The fake device aborts when that is waited for without limit. */
static void the_free_of_another_thread_is_waited_for_with_a_limit(void **state)
{
    (void)state;
    world_remake("", BLOCK);
    work_goes_on();
    w.device.stuck = 1;
    fake_call_as(1);
    uint64_t block = take(BLOCK);
    fake_call_as(2);
    give(block);
    fake_call_as(1);
    uint64_t before = fake_clock();
    assert_int_equal(try_take(BLOCK), FAKE_OOM);
    assert_in_range(fake_clock() - before, UINT64_C(1000000000), UINT64_C(30000000000));
    assert_int_equal(COUNTER(num_ooms), 1);
    w.device.stuck = 0;
    pass_all();
    assert_int_equal(take(BLOCK), block); /* and nothing is lost */
}

static void so_is_a_mark_later_than_its_free(void **state)
{
    (void)state;
    world_remake("", BLOCK);
    work_goes_on();
    w.device.stuck = 1;
    uint64_t block = take(BLOCK);
    w.device.code[FAKE_RECORD] = DEVICE_DEFERRED;
    give(block);
    w.device.code[FAKE_RECORD] = 0;
    domain_captures_ended(w.domain);
    assert_int_equal(try_take(BLOCK), FAKE_OOM);
    pass_all();
    assert_int_equal(take(BLOCK), block);
}

/* The device works for ever on what was freed. */
static void freed_for_ever(const char *conf, uint64_t capacity, uint64_t bytes)
{
    world_remake(conf, capacity);
    work_goes_on();
    w.device.stuck = 1;
    give(take(bytes));
    fake_advance(UINT64_C(1000000)); /* the device is behind: else a wait has a limit */
}

static void assert_waits(uint64_t bytes, int waits)
{
    uint64_t before = fake_clock(), asked = w.device.calls[FAKE_WAIT];
    fake_call_as(2); /* for its own free a thread would wait without limit */
    assert_int_equal(try_take(bytes), FAKE_OOM);
    assert_int_equal(w.device.calls[FAKE_WAIT] != asked, waits);
    if (!waits)
        assert_true(fake_clock() - before < 2000000);
}

/* Every request here is for more than all that could ever be free, and is refused as natively. */
static void what_nothing_can_serve_waits_for_nothing(void **state)
{
    static const char *const confs[] = {"expandable_segments:True", "expandable_segments:False",
                                        "expandable_segments:True,garbage_collection_threshold:0.1",
                                        "expandable_segments:False,thread_cache:off"};
    (void)state;
    for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) {
        char limited[100];
        snprintf(limited, sizeof limited, "%s,memory_limit_mb:40", confs[i]);
        fake_call_as(1);
        freed_for_ever(confs[i], 40 * MIB, BLOCK); /* more than the device */
        assert_waits(60 * MIB, 0);
        for (uint64_t bytes = 60 * MIB; bytes > 40 * MIB; bytes -= bytes / 10)
            assert_waits(bytes, 0);
        fake_call_as(1);
        freed_for_ever(limited, GIB, BLOCK); /* than the limit */
        assert_waits(41 * MIB, 0);
        fake_call_as(1);
        freed_for_ever(confs[i], 60 * MIB, BLOCK); /* than the program leaves */
        fake_call_as(2);
        take(20 * MIB);
        assert_waits(42 * MIB, 0);
        w.device.used += 20 * MIB; /* than other processes leave */
        assert_waits(22 * MIB, 0);
    }
}

/* The gaps between live blocks come to 20 MiB, but never to one block. */
static void nor_does_what_would_need_gaps_to_join(void **state)
{
    uint64_t blocks[26];
    (void)state;
    for (int mapped = 0; mapped <= 1; mapped++) {
        fake_call_as(1);
        world_remake(mapped ? "expandable_segments:True" : "expandable_segments:False", 40 * MIB);
        work_goes_on();
        w.device.stuck = 1;
        for (int i = 0; i < 26; i++)
            blocks[i] = take(3 * MIB / 2);
        for (int i = 0; i < 26; i += 2)
            give(blocks[i]);
        fake_advance(UINT64_C(1000000));
        assert_waits(4 * MIB, 0);
        assert_waits(3 * MIB / 2, 1); /* one gap does */
        give(blocks[1]);
        assert_waits(4 * MIB, 1); /* and so do two with what was between them */
    }
}

static void a_hit_never_waits(void **state)
{
    uint64_t address;
    (void)state;
    work_goes_on();
    w.device.stuck = 1;
    give(take(BLOCK));
    assert_int_equal(hit(BLOCK, &address), ALLOCATOR_MISS);
    assert_int_equal(w.device.calls[FAKE_WAIT], 0);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(a_short_wait_saves_growing),
        RULE(a_wait_in_vain_is_no_longer_than_growing),
        RULE(a_device_that_is_behind_is_waited_for),
        RULE(even_then_with_a_limit_for_another_thread),
        RULE(while_room_is_made_a_free_waits),
        RULE(out_of_memory_waits_for_our_own_free),
        RULE(the_free_of_another_thread_is_waited_for_with_a_limit),
        RULE(so_is_a_mark_later_than_its_free),
        RULE(what_nothing_can_serve_waits_for_nothing),
        RULE(nor_does_what_would_need_gaps_to_join),
        RULE(a_hit_never_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
