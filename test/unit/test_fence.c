/* R0: a freed block is handed out again once all work submitted before its free has finished, and
 * not earlier. */
#include "world.h"

#define BLOCK (10 * MIB) /* a segment of its own: reuse shows as the same address */

static void work_goes_on(void)
{
    w.device.instant = 0;
}

static void pending_until_its_mark_passed(void **state)
{
    (void)state;
    work_goes_on();
    uint64_t first = take(BLOCK);
    give(first);
    assert_int_equal(w.device.recorded, 1); /* in the free itself */
    assert_int_equal(w.device.calls[FAKE_SYNC], 0);
    uint64_t second = take(BLOCK);
    assert_int_not_equal(second, first);
    pass_all();
    assert_int_equal(take(BLOCK), first);
}

static void each_free_has_its_own_mark(void **state)
{
    (void)state;
    work_goes_on();
    uint64_t first = take(BLOCK), second = take(BLOCK);
    give(first);
    give(second);
    assert_int_equal(w.device.recorded, 2);
    w.device.passed = 1;
    assert_int_equal(take(BLOCK), first);
    assert_int_not_equal(take(BLOCK), second);
}

/* Another thread's free comes while ours is being recorded. */
static uint64_t other;
static enum fake_call when;
static int when_after, deferred;

static void free_the_other(struct fake_device *device, enum fake_call call, int after)
{
    if (call != when || after != when_after || !other)
        return;
    uint64_t address = other;
    other = 0;
    device->code[FAKE_RECORD] = deferred ? DEVICE_DEFERRED : 0;
    assert_int_equal(domain_free(w.domain, address, FREED_NATIVE), 0);
    device->code[FAKE_RECORD] = 0;
}

static void during(enum fake_call call, int after, int as_deferred, uint64_t address)
{
    when = call;
    when_after = after;
    deferred = as_deferred;
    other = address;
    w.device.meanwhile = free_the_other;
}

/* Sealed, then recorded: what was freed after the batch was closed does not pass with it. */
static void the_batch_is_closed_before_it_is_recorded(void **state)
{
    (void)state;
    for (int after = 0; after < 2; after++) {
        world_remake("", UINT64_MAX);
        work_goes_on();
        uint64_t ours = take(BLOCK), theirs = take(BLOCK);
        during(FAKE_RECORD, after, 1, theirs);
        give(ours);
        pass_all();
        assert_int_equal(take(BLOCK), ours);
        assert_int_not_equal(take(BLOCK), theirs);
        domain_captures_ended(w.domain);
        assert_int_equal(w.device.recorded, 2);
        assert_int_not_equal(take(BLOCK), theirs);
        pass_all();
        assert_int_equal(take(BLOCK), theirs);
    }
}

/* Theirs was recorded later than ours but booked earlier: ours passing says nothing about theirs.
 */
static void marks_recorded_at_the_same_time_do_not_stand_for_each_other(void **state)
{
    (void)state;
    work_goes_on();
    uint64_t before = take(BLOCK), ours = take(BLOCK), theirs = take(BLOCK);
    give(before);
    during(FAKE_RECORD, 1, 0, theirs);
    give(ours);
    assert_int_equal(w.device.recorded, 3);
    w.device.passed = 2;
    assert_int_equal(take(BLOCK), before);
    assert_int_equal(take(BLOCK), ours);
    assert_int_not_equal(take(BLOCK), theirs);
    pass_all();
    assert_int_equal(take(BLOCK), theirs);
}

static void the_last_mark_answers_for_all_before(void **state)
{
    uint64_t block[50];
    (void)state;
    work_goes_on();
    for (int i = 0; i < 50; i++)
        block[i] = take(BLOCK);
    for (int i = 0; i < 50; i++)
        give(block[i]);
    pass_all();
    uint64_t queries = w.device.calls[FAKE_QUERY];
    for (int i = 0; i < 50; i++)
        assert_int_equal(take(BLOCK), block[i]);
    assert_in_range(w.device.calls[FAKE_QUERY] - queries, 1, 4);
}

static void hits_do_not_ask_the_device_every_time(void **state)
{
    (void)state;
    work_goes_on();
    give(take(BLOCK));
    uint64_t queries = w.device.calls[FAKE_QUERY];
    take(512);
    for (int i = 0; i < 1000; i++)
        take(512);
    assert_in_range(w.device.calls[FAKE_QUERY] - queries, 1, 200);
}

static void events_are_used_again(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        give(take(BLOCK));
    assert_in_range(w.device.events, 1, 2);
    assert_int_equal(COUNTER(num_fences), 1000);
}

/* A second thread retires the mark we are asking about, and frees: the event must not be marked
 * anew (the fake device sees that). */
static void retire_and_free(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_QUERY || after || !other)
        return;
    uint64_t address = other;
    other = 0;
    pass_all();
    domain_poll(w.domain);
    assert_int_equal(domain_free(w.domain, address, FREED_NATIVE), 0);
    device->passed = 1;
}

static void an_event_asked_about_is_left_alone(void **state)
{
    (void)state;
    work_goes_on();
    uint64_t first = take(BLOCK), second = take(BLOCK);
    give(first);
    other = second;
    w.device.meanwhile = retire_and_free;
    assert_int_equal(take(BLOCK), first);
    assert_int_equal(w.device.recorded, 2);
    assert_int_not_equal(take(BLOCK), second);
    w.device.meanwhile = NULL;
    pass_all();
    assert_int_equal(take(BLOCK), second);
    give(first);
    give(second);
    assert_in_range(w.device.events, 1, 2);
}

static void a_capture_defers_and_is_not_disturbed(void **state)
{
    (void)state;
    work_goes_on();
    w.device.code[FAKE_RECORD] = DEVICE_DEFERRED;
    uint64_t block = take(BLOCK);
    give(block);
    assert_int_equal(w.device.calls[FAKE_SYNC], 0);
    pass_all();
    assert_int_not_equal(take(BLOCK), block);
    w.device.code[FAKE_RECORD] = 0;
    domain_captures_ended(w.domain);
    assert_int_equal(w.device.recorded, 1);
    assert_int_not_equal(take(BLOCK), block);
    pass_all();
    assert_int_equal(take(BLOCK), block);
}

static void still_captured_when_a_capture_ends(void **state)
{
    (void)state;
    w.device.code[FAKE_RECORD] = DEVICE_DEFERRED;
    uint64_t block = take(BLOCK);
    give(block);
    domain_captures_ended(w.domain);
    assert_int_not_equal(take(BLOCK), block);
    w.device.code[FAKE_RECORD] = 0;
    domain_captures_ended(w.domain);
    assert_int_equal(take(BLOCK), block);
}

static void the_capture_ends_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RECORD || !after || !device->code[FAKE_RECORD])
        return;
    device->code[FAKE_RECORD] = 0;
    domain_captures_ended(w.domain);
}

/* It was refused, and the capture's end found nothing that waits. */
static void a_capture_ends_while_a_fence_is_refused(void **state)
{
    (void)state;
    work_goes_on();
    w.device.code[FAKE_RECORD] = DEVICE_DEFERRED;
    w.device.meanwhile = the_capture_ends_meanwhile;
    uint64_t block = take(BLOCK);
    give(block);
    pass_all();
    assert_int_equal(take(BLOCK), block);
}

static void the_next_free_stands_for_the_deferred_too(void **state)
{
    (void)state;
    work_goes_on();
    uint64_t captured = take(BLOCK), later = take(BLOCK);
    w.device.code[FAKE_RECORD] = DEVICE_DEFERRED;
    give(captured);
    w.device.code[FAKE_RECORD] = 0;
    give(later);
    pass_all();
    assert_int_equal(take(BLOCK), captured);
    assert_int_equal(take(BLOCK), later);
    assert_int_equal(w.device.recorded, 1);
}

static void a_driver_without_context_events_is_waited_for(void **state)
{
    (void)state;
    work_goes_on();
    w.device.code[FAKE_RECORD] = DEVICE_UNSUPPORTED;
    uint64_t block = take(BLOCK);
    for (int i = 1; i <= 3; i++) {
        give(block);
        assert_int_equal(w.device.calls[FAKE_SYNC], i);
        assert_int_equal(take(BLOCK), block);
    }
    assert_int_equal(w.device.calls[FAKE_RECORD], 1); /* asked once */
}

static void strict_waits_like_the_native_call(void **state)
{
    (void)state;
    world_remake("free_mode:strict", UINT64_MAX);
    work_goes_on();
    uint64_t block = take(BLOCK);
    give(block);
    assert_int_equal(w.device.calls[FAKE_SYNC], 1);
    assert_int_equal(w.device.calls[FAKE_RECORD], 0);
    assert_int_equal(take(BLOCK), block);
    assert_int_equal(COUNTER(num_fences), 0);
}

static void strict_waits_before_anybody_gets_the_block(void **state)
{
    (void)state;
    world_remake("free_mode:strict", UINT64_MAX);
    uint64_t block = take(BLOCK), theirs = take(BLOCK);
    during(FAKE_SYNC, 0, 0, theirs);
    give(block);
    assert_int_equal(w.device.calls[FAKE_SYNC], 2);
    assert_int_equal(take(BLOCK), block);
    assert_int_equal(take(BLOCK), theirs);
}

static void an_error_shows_at_the_free_and_the_block_is_gone(void **state)
{
    (void)state;
    uint64_t block = take(BLOCK), second = take(BLOCK);
    w.device.code[FAKE_RECORD] = w.device.code[FAKE_SYNC] = FAKE_BROKEN;
    assert_int_equal(try_give(block), 700);
    assert_int_equal(CURRENT(allocation), 1);
    assert_int_equal(try_give(block), ALLOCATOR_INVALID);
    assert_int_equal(try_take(BLOCK), ALLOCATOR_PASS); /* the driver answers for a broken context */
    assert_int_equal(try_give(second), 700);
}

/* The next free's fence stands for what this one could not get a fence for. */
static void a_passing_error_loses_nothing(void **state)
{
    (void)state;
    uint64_t block = take(BLOCK), second = take(BLOCK);
    w.device.code[FAKE_RECORD] = w.device.code[FAKE_SYNC] = 999;
    give(block);
    assert_int_equal(w.device.calls[FAKE_FAILED], 1);
    assert_int_equal(CURRENT(allocation), 1);
    assert_int_equal(CURRENT(active), 2);
    w.device.code[FAKE_RECORD] = w.device.code[FAKE_SYNC] = 0;
    give(second);
    assert_int_equal(CURRENT(active), 0);
    assert_int_equal(take(BLOCK), block);
    assert_int_equal(take(BLOCK), second);
}

static void nor_does_one_of_a_query(void **state)
{
    (void)state;
    uint64_t block = take(BLOCK);
    w.device.code[FAKE_QUERY] = 999;
    give(block);
    assert_int_equal(CURRENT(active), 1);
    w.device.code[FAKE_QUERY] = 0;
    assert_int_equal(take(BLOCK), block);
}

static void a_query_shows_that_the_context_is_broken(void **state)
{
    (void)state;
    uint64_t cached = take(BLOCK), pending = take(BLOCK);
    give(cached);
    w.device.code[FAKE_QUERY] = FAKE_BROKEN;
    give(pending);
    assert_int_equal(try_take(BLOCK), ALLOCATOR_PASS);
}

static void a_mark_that_fails_alone_is_a_wait(void **state)
{
    (void)state;
    uint64_t block = take(BLOCK);
    w.device.code[FAKE_RECORD] = 2;
    give(block);
    assert_int_equal(w.device.calls[FAKE_SYNC], 1);
    assert_int_equal(take(BLOCK), block);
}

static void a_late_free_touches_nothing(void **state)
{
    (void)state;
    uint64_t block = take(BLOCK);
    assert_int_equal(domain_free(w.domain, block, FREED_LATE), FREED_NATIVE);
    for (int call = FAKE_FREE; call < FAKE_CALLS; call++)
        assert_int_equal(w.device.calls[call], 0);
    assert_int_equal(COUNTER(num_late_frees), 1);
    assert_int_equal(CURRENT(allocated_bytes), 0);
    assert_int_not_equal(take(BLOCK), block);
    assert_int_equal(try_give(block), ALLOCATOR_INVALID);
}

/* A program that captures without a pause would else hold all it ever freed. */
static void frees_that_pile_up_during_captures_wait_as_natively(void **state)
{
    (void)state;
    w.device.instant = 0;
    w.device.code[FAKE_RECORD] = DEVICE_DEFERRED;
    uint64_t block[3];
    for (int i = 0; i < 3; i++)
        block[i] = take(20 * MIB);
    give(block[0]);
    assert_int_equal(w.device.calls[FAKE_SYNC], 0);
    give(block[1]);
    assert_int_equal(w.device.calls[FAKE_SYNC], 1);
    assert_true(CURRENT(active_bytes) == 20 * MIB && COUNTER(num_wait_frees) == 2);
    give(block[2]);
    assert_int_equal(w.device.calls[FAKE_SYNC], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(pending_until_its_mark_passed),
        RULE(each_free_has_its_own_mark),
        RULE(the_batch_is_closed_before_it_is_recorded),
        RULE(marks_recorded_at_the_same_time_do_not_stand_for_each_other),
        RULE(the_last_mark_answers_for_all_before),
        RULE(hits_do_not_ask_the_device_every_time),
        RULE(events_are_used_again),
        RULE(an_event_asked_about_is_left_alone),
        RULE(a_capture_defers_and_is_not_disturbed),
        RULE(still_captured_when_a_capture_ends),
        RULE(a_capture_ends_while_a_fence_is_refused),
        RULE(the_next_free_stands_for_the_deferred_too),
        RULE(a_driver_without_context_events_is_waited_for),
        RULE(strict_waits_like_the_native_call),
        RULE(strict_waits_before_anybody_gets_the_block),
        RULE(an_error_shows_at_the_free_and_the_block_is_gone),
        RULE(a_passing_error_loses_nothing),
        RULE(nor_does_one_of_a_query),
        RULE(a_query_shows_that_the_context_is_broken),
        RULE(a_mark_that_fails_alone_is_a_wait),
        RULE(a_late_free_touches_nothing),
        RULE(frees_that_pile_up_during_captures_wait_as_natively),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
