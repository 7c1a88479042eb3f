/* Lanes, rule by rule: what a free may do, what each submission asks of the driver, and when a lane
 * comes back. */
#include <pthread.h>

#include "lane_world.h"

static void with_nothing_outstanding_a_free_is_reused_and_needs_no_mark(void **state)
{
    (void)state;
    assert_reused_at_once();
    assert_int_equal(submit(L), 1);
    assert_true(marks() == 0 && w.device.recorded == 0);
}

static void on_a_lane_a_free_is_reused_and_marked_before_the_next_submission(void **state)
{
    (void)state;
    assert_int_equal(submit(L), 1);
    assert_int_equal(submit(L), -1);
    assert_reused_at_once();
    assert_true(marks() == 0);
    assert_int_equal(submit(L), 1);
    assert_true(marks() == 1 && w.device.recorded == 1);
    assert_int_equal(submit(L), -1);
    assert_true(marks() == 1 && joins == 0 && COUNTER(num_lane_frees) == 2);
}

static void the_event_of_the_mark_before_is_recorded_again(void **state)
{
    (void)state;
    submit(L);
    for (unsigned i = 0; i < 10; i++) {
        assert_reused_at_once();
        submit(L);
    }
    assert_true(marks() == 10 && w.device.recorded == 10 && w.device.events == 1);
    submit(K);
    assert_true(joins == 1 && joined_mark == 10);
}

static void each_other_stream_joins_the_early_mark_once(void **state)
{
    (void)state;
    submit(L);
    assert_reused_at_once();
    submit(L);
    submit(K);
    assert_true(mode() == LANE_MANY && joins == 1 && joined_mark == 1 && w.device.recorded == 1);
    assert_int_equal(submit(K), -1);
    submit(M);
    assert_true(joins == 2);
    assert_not_reused();
}

static void a_dirty_lane_is_marked_before_it_is_left(void **state)
{
    (void)state;
    submit(L);
    assert_reused_at_once();
    submit(K);
    assert_true(marks() == 1 && joins == 1 && mode() == LANE_MANY);
}

static void without_frees_nobody_joins(void **state)
{
    (void)state;
    submit(L);
    submit(K);
    assert_true(joins == 0 && w.device.recorded == 0 && mode() == LANE_MANY);
}

static void back_to_the_only_stream_used_since(void **state)
{
    (void)state;
    submit(L);
    submit(K);
    uint64_t block = take(512);
    give(block); /* candidate */
    submit(K);
    pass_all();
    domain_poll(w.domain);
    assert_true(mode() == LANE_SINGLE && barriers == 1);
    assert_reused_at_once();
    submit(K);
    assert_true(mode() == LANE_SINGLE);
    submit(L);
    assert_true(mode() == LANE_MANY && joins == 1);
}

static void back_to_nothing_outstanding(void **state)
{
    (void)state;
    submit(L);
    submit(K);
    pass_candidate();
    assert_true(mode() == LANE_NONE);
    assert_reused_at_once();
}

static void two_streams_used_since_are_no_lane(void **state)
{
    (void)state;
    submit(L);
    submit(K);
    give(take(512));
    submit(L);
    submit(K);
    pass_all();
    domain_poll(w.domain);
    assert_true(mode() == LANE_MANY);
}

/* What was under way when the books began may take effect after the fence was recorded. */
static void nothing_is_restored_over_a_submission_in_flight(void **state)
{
    (void)state;
    struct lane_thread *other = lane_thread_begin(w.domain);
    submit(L);
    submit(K);
    enter(other, K);
    pass_candidate();
    assert_true(mode() == LANE_MANY);
    lane_leave(other);
    pass_candidate(); /* this fence stands for it */
    assert_true(mode() == LANE_NONE);
    lane_thread_end(w.domain, other);
}

/* So it may when it has returned before the fence passes: it counts when that is recorded. */
static void nothing_is_restored_over_a_submission_that_was_in_flight(void **state)
{
    (void)state;
    struct lane_thread *other = lane_thread_begin(w.domain);
    submit(L);
    submit(K);
    enter(other, K);
    give(take(512));
    lane_leave(other);
    pass_all();
    domain_poll(w.domain);
    assert_true(mode() == LANE_MANY);
    lane_thread_end(w.domain, other);
}

static void submit_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RECORD || !after)
        return;
    device->meanwhile = NULL;
    submit(K);
}

static void what_is_submitted_while_the_candidate_is_recorded_counts(void **state)
{
    (void)state;
    submit(L);
    submit(M);
    w.device.meanwhile = submit_meanwhile;
    give(take(512));
    pass_all();
    domain_poll(w.domain);
    assert_true(mode() == LANE_SINGLE && submit(K) == 1 && mode() == LANE_SINGLE);
}

static void a_fence_of_another_context_leads_to_no_lane(void **state)
{
    (void)state;
    struct fake_device second;
    fake_init(&second, UINT64_MAX);
    struct allocator *other = world_add(&second, NULL);
    uint64_t block;
    second.instant = 0;
    assert_int_equal(allocator_malloc(other, 512, &block), 0);
    submit(L);
    submit(K);
    give(block);
    second.passed = second.recorded;
    domain_poll(w.domain);
    assert_true(mode() == LANE_MANY);
}

static uint64_t freed_meanwhile;

static void *free_it(void *block)
{
    assert_int_equal(domain_free(w.domain, *(uint64_t *)block, FREED_NATIVE), 0);
    return NULL;
}

static void free_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    pthread_t thread;
    if (call != FAKE_RECORD || !after)
        return;
    device->meanwhile = NULL;
    assert_int_equal(pthread_create(&thread, NULL, free_it, &freed_meanwhile), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A mark is recorded, and a block is there that is freed meanwhile. */
static void mark_while(void (*meanwhile)(struct fake_device *, enum fake_call, int))
{
    uint64_t block = take(512);
    freed_meanwhile = take(512);
    submit(L);
    give(block);
    w.device.meanwhile = meanwhile;
    submit(L);
}

static void a_free_while_the_mark_is_recorded_is_not_covered_by_it(void **state)
{
    (void)state;
    mark_while(free_meanwhile);
    assert_true(marks() == 2);
    submit(K);
    assert_true(joins == 1 && joined_mark == 2);
}

static void free_called_back(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RECORD || !after)
        return;
    device->meanwhile = NULL;
    free_it(&freed_meanwhile);
}

/* Else a tool that frees whenever an event is recorded would have one recorded for ever. */
static void a_free_called_back_while_the_mark_is_recorded_takes_a_fence(void **state)
{
    (void)state;
    mark_while(free_called_back);
    assert_true(marks() == 1 && COUNTER(num_fences) == 1);
}

static void submit_called_back(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RECORD || after)
        return;
    device->meanwhile = NULL;
    submit(K);
    assert_true(joins == 1 && joined_mark == 1);
}

static void work_called_back_while_the_mark_is_recorded_has_one_of_its_own(void **state)
{
    (void)state;
    submit(L);
    give(take(512));
    w.device.meanwhile = submit_called_back;
    submit(L);
    assert_true(marks() == 2 && mode() == LANE_MANY && joins == 2 && joined_mark == 1);
}

/* Called back within a submission: it is seen in flight no more. */
static void a_submission_within_another_ends_the_lane(void **state)
{
    (void)state;
    submit(L);
    submit(K);
    enter(self, K);
    assert_int_equal(submit(L), 1);
    pass_candidate();
    assert_true(mode() == LANE_NONE && !lane_leave(self));
    lane_outrun(w.domain);
    assert_true(mode() == LANE_MANY);
    enter(self, K);
    assert_int_equal(lane_leave(self), 1);
}

/* The submission that cleared `dirty` may come to nothing: then another thread's may not overtake.
 */
static void a_mark_is_news_to_every_thread(void **state)
{
    (void)state;
    struct lane_thread *other = lane_thread_begin(w.domain);
    submit(L);
    for (int i = 0; i < 2; i++) {
        give(take(512));
        assert_int_equal(submit(L), 1);
        assert_int_equal(enter(other, L), 1);
        lane_leave(other);
        assert_int_equal(enter(other, L), -1);
        lane_leave(other);
    }
    assert_true(marks() == 2);
    lane_thread_end(w.domain, other);
}

/* It waits for nothing natively; its mark could be a wait for what comes later. */
static void a_free_in_a_stream_takes_a_fence_that_may_be_waited_for_a_while(void **state)
{
    (void)state;
    submit(L);
    allocator_note_host_work(w.a);
    uint64_t block = take(4 * MIB), fences = COUNTER(num_fences);
    assert_int_equal(domain_free(w.domain, block, FREED_ASYNC), 0);
    assert_true(COUNTER(num_fences) == fences + 1 && w.device.calls[FAKE_WAIT] == 0);
    submit(L);
    submit(K);
    assert_true(marks() == 0 && joins == 0);
    fake_advance(1000000);
    w.device.stuck = 1;
    take(4 * MIB);
    w.device.stuck = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE(with_nothing_outstanding_a_free_is_reused_and_needs_no_mark),
        LANE(on_a_lane_a_free_is_reused_and_marked_before_the_next_submission),
        LANE(the_event_of_the_mark_before_is_recorded_again),
        LANE(each_other_stream_joins_the_early_mark_once),
        LANE(a_dirty_lane_is_marked_before_it_is_left),
        LANE(without_frees_nobody_joins),
        LANE(back_to_the_only_stream_used_since),
        LANE(back_to_nothing_outstanding),
        LANE(two_streams_used_since_are_no_lane),
        LANE(nothing_is_restored_over_a_submission_in_flight),
        LANE(nothing_is_restored_over_a_submission_that_was_in_flight),
        LANE(what_is_submitted_while_the_candidate_is_recorded_counts),
        LANE(a_fence_of_another_context_leads_to_no_lane),
        LANE(a_free_while_the_mark_is_recorded_is_not_covered_by_it),
        LANE(a_free_called_back_while_the_mark_is_recorded_takes_a_fence),
        LANE(work_called_back_while_the_mark_is_recorded_has_one_of_its_own),
        LANE(a_submission_within_another_ends_the_lane),
        LANE(a_mark_is_news_to_every_thread),
        LANE(a_free_in_a_stream_takes_a_fence_that_may_be_waited_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
