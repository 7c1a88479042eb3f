/* Where many threads free faster than the device gets on, frees wait; and nobody waits for what
 * others go on to free meanwhile. */
#include "allocator/reuse/fence.h"
#include "world.h"
#include "allocator/state/enter.h"

#define BLOCK (10 * MIB) /* a segment of its own: reuse shows as the same address */

static void work_goes_on(void)
{
    w.device.instant = 0;
}

enum { BLOCKS = 8, MORE = 5 * BLOCKS }; /* after 32 turns, 16 of one thread, a crowd may end */

/* A crowd: two threads have freed much, in turn, and another has found nothing. Returns a block of
 * the first. */
static uint64_t crowd(void)
{
    uint64_t block[BLOCKS];
    work_goes_on();
    fake_call_as(1);
    uint64_t left = take(BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = take(BLOCK);
    for (int i = 0; i < BLOCKS; i++) {
        fake_call_as(1 + i % 2);
        give(block[i]);
    }
    assert_int_equal(w.device.calls[FAKE_WAIT], 0);
    w.device.stuck = 1;
    fake_call_as(3);
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

static uint64_t busy[MORE];

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
    for (int i = 0; i < 2 * BLOCKS; i++) {
        fake_call_as(1 + i % 2);
        block[i] = take(6 * MIB);
    }
    give(left);
    pass_all();
    allocator_enter(w.a);
    fence_poll(w.a, 1);
    allocator_leave(w.a);
    w.a->caches.sharers = 2;
    for (int i = 0; i < 2 * BLOCKS; i++) {
        fake_call_as(1 + i % 2);
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

/* Threads of which one takes over from the other run ahead of nobody, though each finds much that
 * waits for the other's fences. */
static void nor_are_threads_that_take_over(void **state)
{
    (void)state;
    uint64_t block[12 * BLOCKS], crowds = 0;
    work_goes_on();
    for (int round = 0; round < 2; round++) {
        fake_call_as(1 + round % 2);
        for (int i = 0; i < 12 * BLOCKS; i++) {
            block[i] = take(BLOCK);
            crowds += w.a->crowd.is_on;
        }
        uint64_t waits = 0;
        for (int i = 0; i < 12 * BLOCKS; i++) {
            waits = i < 10 * BLOCKS ? w.device.calls[FAKE_WAIT] : waits;
            give(block[i]);
        }
        assert_int_equal(w.device.calls[FAKE_WAIT], waits);
    }
    assert_true(crowds);
}

/* Each time that comes again it lasts twice as long: else the cache would grow by each. */
static void but_each_crowd_lasts_longer(void **state)
{
    (void)state;
    uint64_t turns[4];
    for (int i = 0; i < 4; i++) {
        uint64_t left = crowd();
        assert_true(w.a->crowd.is_on);
        for (turns[i] = 0; w.a->crowd.is_on; turns[i]++)
            give(take(BLOCK));
        give(left);
        pass_all();
        allocator_enter(w.a);
        fence_poll(w.a, 1);
        allocator_leave(w.a);
        w.device.calls[FAKE_WAIT] = 0;
    }
    for (int i = 1; i < 4; i++)
        assert_in_range(turns[i], 2 * turns[i - 1] - 4, 2 * turns[i - 1] + 4);
}

static uint64_t waited_for;

static void free_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_WAIT || after || waited_for)
        return;
    waited_for = 1;
    fake_call_as(1);
    for (int i = 0; i < MORE; i++)
        give(busy[i]);
    waited_for = device->calls[FAKE_WAIT];
    fake_call_as(3);
}

/* But one that others wait for is, however long they do not get on. */
static void one_that_others_wait_for_is(void **state)
{
    (void)state;
    for (int i = 0; i < MORE; i++)
        busy[i] = take(BLOCK / 4);
    uint64_t left = crowd();
    fake_call_as(3);
    waited_for = 0;
    w.device.meanwhile = free_meanwhile;
    give(left);
    w.device.meanwhile = NULL;
    assert_in_range(waited_for, BLOCKS, 2 * MORE);
    assert_true(w.a->crowd.is_on);
}

/* And a crowd ends. */
static void nor_is_a_thread_that_is_left(void **state)
{
    (void)state;
    give(crowd());
    for (int i = 0; i < 64; i++) {
        pass_all();
        give(take(BLOCK));
    }
    uint64_t block[BLOCKS], waits = w.device.calls[FAKE_WAIT];
    for (int i = 0; i < BLOCKS; i++)
        block[i] = take(BLOCK);
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
    fence_wait_all(w.a, DEVICE_FOREVER);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(in_a_crowd_a_free_waits),
        RULE(but_not_in_the_order_of_a_stream),
        RULE(and_for_what_its_thread_freed_a_share_ago),
        RULE(nor_for_what_others_free_meanwhile),
        RULE(an_error_of_the_wait_is_the_frees),
        RULE(but_not_one_that_only_our_call_has),
        RULE(one_thread_is_no_crowd),
        RULE(nor_are_threads_that_take_over),
        RULE(but_each_crowd_lasts_longer),
        RULE(one_that_others_wait_for_is),
        RULE(nor_is_a_thread_that_is_left),
        RULE(a_thread_that_finds_nothing_does_not_wait_for_long),
        RULE(even_at_the_limit_only_for_what_was_freed_before),
        RULE(nor_is_given_back_what_others_free_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
