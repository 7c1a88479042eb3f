/* Waiting for a fence: when it is better than growing, and for whose work it is never without a
 * limit. */
#include "allocator/fence.h"
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

enum { BLOCKS = 8 };

/* A crowd: one thread has freed much, and another has found nothing. Returns a block of the first.
 */
static uint64_t crowd(void)
{
    uint64_t block[BLOCKS];
    work_goes_on();
    fake_call_as(1);
    uint64_t left = take(BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = take(BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        give(block[i]);
    assert_int_equal(w.device.calls[FAKE_WAIT], 0);
    w.device.stuck = 1;
    fake_call_as(2);
    take(9 * BLOCK);
    w.device.stuck = 0;
    w.device.calls[FAKE_WAIT] = 0;
    fake_call_as(1);
    return left;
}

/* Where threads free more than the device gets through, frees wait until it is less. */
static void in_a_crowd_a_free_waits(void **state)
{
    (void)state;
    give(crowd());
    assert_int_equal(w.device.calls[FAKE_SYNC], 0);
    assert_true(w.device.last_timeout == DEVICE_FOREVER);
    assert_in_range(w.device.calls[FAKE_WAIT], 1, BLOCKS);
    assert_int_equal(COUNTER(num_fence_waits), 2);
    uint64_t waiting = CURRENT(active_bytes) - CURRENT(allocated_bytes);
    assert_in_range(waiting, 2 * BLOCK, 32 * MIB);
}

/* One that natively waits for nothing does not. */
static void but_not_in_the_order_of_a_stream(void **state)
{
    (void)state;
    uint64_t left = crowd();
    assert_int_equal(domain_free(w.domain, left, FREED_ASYNC), 0);
    assert_int_equal(w.device.calls[FAKE_WAIT], 0);
}

static uint64_t busy[BLOCKS];

static void others_go_on(struct fake_device *device, enum fake_call call, int after)
{
    uint64_t *next = &busy[device->calls[FAKE_WAIT] % BLOCKS];
    if (call != FAKE_WAIT || after || !*next)
        return;
    assert_int_equal(domain_free(w.domain, *next, FREED_ASYNC), 0);
    *next = 0;
}

/* Nor does anybody run ahead by more than a share of that, however little waits. */
static void and_for_what_its_thread_freed_a_share_ago(void **state)
{
    (void)state;
    uint64_t block[2 * BLOCKS], most = 0, left = crowd();
    for (int i = 0; i < 2 * BLOCKS; i++)
        block[i] = take(6 * MIB);
    give(left);
    pass_all();
    w.a->sharers = 2;
    for (int i = 0; i < 2 * BLOCKS; i++) {
        give(block[i]);
        uint64_t waiting = CURRENT(active_bytes) - CURRENT(allocated_bytes);
        most = waiting > most ? waiting : most;
    }
    assert_in_range(most, 12 * MIB, 30 * MIB);
}

/* And for none that came after it. */
static void nor_for_what_others_free_meanwhile(void **state)
{
    (void)state;
    fake_call_as(3);
    for (int i = 0; i < BLOCKS; i++)
        busy[i] = take(2 * BLOCK);
    uint64_t left = crowd();
    w.device.meanwhile = others_go_on;
    give(left);
    w.device.meanwhile = NULL;
    assert_int_equal(w.device.calls[FAKE_WAIT], BLOCKS);
    assert_true(CURRENT(active_bytes) - CURRENT(allocated_bytes) >= 2 * (BLOCKS - 1) * BLOCK);
}

static void an_error_of_the_wait_is_the_frees(void **state)
{
    (void)state;
    uint64_t left = crowd();
    w.device.code[FAKE_WAIT] = FAKE_BROKEN;
    assert_int_equal(try_give(left), FAKE_BROKEN);
}

static void but_not_one_that_only_our_call_has(void **state)
{
    (void)state;
    uint64_t left = crowd();
    w.device.code[FAKE_WAIT] = FAKE_INVALID;
    assert_int_equal(try_give(left), 0);
    assert_int_equal(CURRENT(allocated_bytes), 9 * BLOCK);
}

/* Who waits for its own frees alone has no need of that. */
static void one_thread_is_no_crowd(void **state)
{
    (void)state;
    uint64_t block[BLOCKS];
    work_goes_on();
    for (int i = 0; i < BLOCKS; i++)
        block[i] = take(BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        give(block[i]);
    take(9 * BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = take(BLOCK);
    uint64_t waits = w.device.calls[FAKE_WAIT];
    for (int i = 0; i < BLOCKS; i++)
        give(block[i]);
    assert_int_equal(w.device.calls[FAKE_WAIT], waits);
}

static void pass_one_in_1500_us(struct fake_device *device, enum fake_call call, int after)
{
    if (call == FAKE_WAIT && !after) {
        fake_advance(UINT64_C(1500000));
        device->passed++;
    }
}

/* The limit is for all that others freed, not for each. */
static void a_thread_that_finds_nothing_does_not_wait_for_long(void **state)
{
    (void)state;
    uint64_t block[BLOCKS];
    work_goes_on();
    fake_call_as(1);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = take(BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        give(block[i]);
    fake_call_as(2);
    w.device.meanwhile = pass_one_in_1500_us;
    uint64_t before = fake_clock();
    take(GIB);
    w.device.meanwhile = NULL;
    assert_in_range(fake_clock() - before, 1500000, 4000000);
}

static void pass_one_and_go_on(struct fake_device *device, enum fake_call call, int after)
{
    pass_one_in_1500_us(device, call, after);
    others_go_on(device, call, after);
}

/* Nor, where memory is short, for what others free meanwhile: they may go on until it returns. */
static void even_at_the_limit_only_for_what_was_freed_before(void **state)
{
    (void)state;
    uint64_t block[BLOCKS];
    work_goes_on();
    fake_call_as(1);
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = take(BLOCK);
        busy[i] = take(BLOCK);
    }
    for (int i = 0; i < BLOCKS; i++)
        give(block[i]);
    fake_call_as(2);
    w.device.meanwhile = pass_one_and_go_on;
    allocator_enter(w.a);
    assert_null(fence_wait_for(w.a, GIB, DEVICE_FOREVER));
    allocator_leave(w.a);
    w.device.meanwhile = NULL;
    assert_int_equal(w.device.calls[FAKE_WAIT], BLOCKS);
}

static void free_another(struct fake_device *device, enum fake_call call, int after)
{
    static int within;
    if (call != FAKE_FREE || after || within || device->calls[FAKE_FREE] > 20)
        return;
    within = 1;
    give(take(5 * BLOCK)); /* what was idle is handed out, or lies in front of it */
    within = 0;
}

/* Nor is given back what others have idle only since. */
static void nor_is_given_back_what_others_free_meanwhile(void **state)
{
    (void)state;
    uint64_t block[] = {take(2 * BLOCK), take(3 * BLOCK), take(4 * BLOCK)};
    for (int i = 0; i < 3; i++)
        give(block[i]);
    w.device.meanwhile = free_another;
    domain_empty_cache(w.domain, 1);
    w.device.meanwhile = NULL;
    assert_int_equal(w.device.calls[FAKE_FREE], 3);
    assert_int_equal(CURRENT(segment), 1);
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
    assert_int_equal(try_take(30 * MIB), 0);
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
        RULE(in_a_crowd_a_free_waits),
        RULE(but_not_in_the_order_of_a_stream),
        RULE(and_for_what_its_thread_freed_a_share_ago),
        RULE(nor_for_what_others_free_meanwhile),
        RULE(an_error_of_the_wait_is_the_frees),
        RULE(but_not_one_that_only_our_call_has),
        RULE(one_thread_is_no_crowd),
        RULE(a_thread_that_finds_nothing_does_not_wait_for_long),
        RULE(even_at_the_limit_only_for_what_was_freed_before),
        RULE(nor_is_given_back_what_others_free_meanwhile),
        RULE(while_room_is_made_a_free_waits),
        RULE(out_of_memory_waits_for_our_own_free),
        RULE(the_free_of_another_thread_is_waited_for_with_a_limit),
        RULE(so_is_a_mark_later_than_its_free),
        RULE(a_hit_never_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
