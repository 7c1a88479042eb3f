/* Lanes and what begins and ends beside the work: captures, streams, contexts, exports, threads;
 * and what the host may see. */
#include <pthread.h>

#include "allocator/share.h"
#include "lane_world.h"
#include "stats/os/pause.h"

static void captures_end_the_lane_and_keep_it_away(void **state)
{
    (void)state;
    submit(L);
    assert_reused_at_once();
    lane_capture_begins(w.domain);
    assert_true(marks() == 1 && mode() == LANE_MANY);
    capturing[K] = 1;
    assert_int_equal(submit(K), 0);
    assert_true(joins == 0);
    submit(M);
    assert_true(joins == 1);
    pass_candidate();
    assert_true(mode() == LANE_MANY);
    capturing[K] = 0;
    lane_capture_ended(w.domain);
    pass_candidate();
    assert_true(mode() == LANE_NONE);
}

static void a_candidate_does_not_outlive_the_beginning_of_a_capture(void **state)
{
    (void)state;
    submit(L);
    submit(K);
    give(take(512));
    lane_capture_begins(w.domain);
    pass_all();
    domain_poll(w.domain);
    assert_true(mode() == LANE_MANY);
    lane_capture_ended(w.domain);
}

static void a_stream_that_ends_leaves_its_lane(void **state)
{
    (void)state;
    submit(L);
    assert_reused_at_once();
    lane_stream_ends(w.domain, K);
    assert_true(mode() == LANE_SINGLE);
    lane_stream_ends(w.domain, L);
    assert_true(mode() == LANE_MANY && marks() == 1);
    assert_int_equal(submit(L), 1); /* another stream now */
    assert_true(joins == 1);
    lane_stream_ends(w.domain, L);
    submit(L);
    assert_true(joins == 2);
    pass_candidate();
    assert_true(mode() == LANE_NONE);
}

static void work_that_waits_for_a_value_is_no_lane(void **state)
{
    (void)state;
    submit(L);
    assert_reused_at_once();
    submit(L);
    lane_waits(w.domain);
    assert_true(mode() == LANE_MANY && marks() == 1);
    assert_not_reused();
    pass_candidate();
    assert_true(mode() == LANE_NONE);
}

static void another_context_joins_and_keeps_the_lane_away(void **state)
{
    (void)state;
    contexts[K] = 77;
    submit(L);
    assert_reused_at_once();
    submit(K);
    assert_true(joins == 1);
    pass_candidate();
    assert_true(mode() == LANE_MANY);
    assert_not_reused();
}

/* Its streams' handles may come back. */
static void the_end_of_another_context_makes_its_streams_join_again(void **state)
{
    (void)state;
    struct fake_device second;
    fake_init(&second, UINT64_MAX);
    struct allocator *other = world_add(&second, NULL);
    contexts[K] = (uint64_t)(uintptr_t)&second;
    submit(L);
    assert_reused_at_once();
    submit(K);
    assert_true(joins == 1 && submit(K) == -1);
    allocator_forget(other);
    assert_true(submit(K) == 1 && joins == 2);
}

static void on_a_lane_of_another_context_a_free_takes_a_fence(void **state)
{
    (void)state;
    contexts[K] = 77;
    submit(K);
    assert_not_reused();
    submit(K);
    assert_true(marks() == 0);
}

static void the_end_of_its_context_ends_the_lane(void **state)
{
    (void)state;
    submit(L);
    assert_reused_at_once();
    submit(L);
    allocator_forget(w.a);
    assert_true(mode() == LANE_NONE && submit(K) == 1 && joins == 0);
}

/* In a function that the driver calls back from within: it cannot wait for the release. */
static void nothing_is_asked_of_a_context_while_it_is_released(void **state)
{
    (void)state;
    submit(L);
    assert_reused_at_once();
    domain_end_begins(w.domain);
    allocator_put_away(w.a, 1);
    submit(K);
    submit(M);
    assert_true(mode() == LANE_MANY && joins == 0);
    assert_int_equal(w.device.calls[FAKE_RECORD] + w.device.calls[FAKE_SYNC], 0);
    allocator_put_away(w.a, 0);
    domain_end_over(w.domain);
    assert_not_reused();
    pass_candidate();
    pass_candidate();
    assert_true(mode() == LANE_NONE);
}

static void *submit_elsewhere(void *unused)
{
    struct lane_thread *thread = lane_thread_begin(w.domain);
    enter(thread, K);
    lane_leave(thread);
    lane_thread_end(w.domain, thread);
    return unused;
}

static void others_wait_until_a_context_is_back(void **state)
{
    pthread_t other;
    (void)state;
    submit(L);
    assert_reused_at_once();
    allocator_put_away(w.a, 1);
    assert_int_equal(pthread_create(&other, NULL, submit_elsewhere, NULL), 0);
    pause_ns(20000000);
    assert_int_equal(w.device.calls[FAKE_RECORD], 0);
    allocator_put_away(w.a, 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_true(marks() == 1 && joins == 1);
}

static void what_was_exported_goes_through_a_fence(void **state)
{
    (void)state;
    struct block_place place;
    submit(L);
    uint64_t block = take(4 * MIB);
    assert_reused_at_once();
    assert_int_equal(domain_mark(w.domain, block, BLOCK_EXPORTED, &place), 0);
    assert_true(w.device.calls[FAKE_WAIT] == 1 && w.device.last_timeout == DEVICE_FOREVER);
    uint64_t fences = COUNTER(num_fences);
    give(block);
    assert_true(COUNTER(num_fences) == fences + 1);
}

static void a_mark_that_cannot_be_recorded_is_a_wait(void **state)
{
    (void)state;
    submit(L);
    assert_reused_at_once();
    w.device.code[FAKE_RECORD] = 999;
    submit(K);
    assert_true(w.device.calls[FAKE_SYNC] == 1 && joins == 0 && mode() == LANE_MANY);
}

static void without_a_record_for_the_thread_no_lane_comes_back(void **state)
{
    (void)state;
    const struct lane_stream stream = {.key = L, .name = L};
    assert_int_equal(lane_submit(w.domain, NULL, &stream), 1);
    submit(K);
    pass_candidate();
    assert_true(mode() == LANE_MANY);
}

/* A free waits for what the host may see, and only for that. */
static void host_work_is_waited_for_by_the_next_free(void **state)
{
    (void)state;
    submit(L);
    uint64_t one = take(512), two = take(512);
    allocator_note_host_work(w.a);
    submit(L);
    give(one);
    assert_true(w.device.calls[FAKE_WAIT] == 1 && w.device.passed == 1);
    give(two);
    assert_true(w.device.calls[FAKE_WAIT] == 1);
    w.device.code[FAKE_RECORD] = 900;
    allocator_note_host_work(w.a);
    give(take(512));
    assert_true(w.device.calls[FAKE_SYNC] == 1);
}

static void note_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RECORD || !after)
        return;
    device->meanwhile = NULL;
    allocator_note_host_work(w.a);
}

static void of_two_marks_of_host_work_at_once_neither_is_the_newer(void **state)
{
    (void)state;
    submit(L);
    uint64_t one = take(512), two = take(512);
    w.device.meanwhile = note_meanwhile;
    allocator_note_host_work(w.a);
    give(one);
    assert_true(w.device.calls[FAKE_SYNC] == 1);
    give(two); /* the mark that was kept */
    assert_true(w.device.calls[FAKE_SYNC] == 1 && w.device.calls[FAKE_WAIT] <= 1);
}

static uint64_t third;

static void free_and_note_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_SYNC || !after)
        return;
    device->meanwhile = NULL;
    give(third);
    allocator_note_host_work(w.a);
}

/* Of host work that could not be marked a wait settles what was there when it began, not as much. */
static void a_wait_covers_nothing_later(void **state)
{
    (void)state;
    submit(L);
    uint64_t one = take(512), two = take(512);
    third = take(512);
    w.device.code[FAKE_RECORD] = 900;
    allocator_note_host_work(w.a);
    w.device.meanwhile = free_and_note_meanwhile;
    give(one);
    assert_true(w.device.calls[FAKE_SYNC] == 2);
    give(two);
    assert_true(w.device.calls[FAKE_SYNC] == 3);
    give(take(512));
    assert_true(w.device.calls[FAKE_SYNC] == 3);
}

/* As a default stream's does when there is a second context. */
static void a_name_that_became_that_of_several_streams_is_on_no_books(void **state)
{
    (void)state;
    submit(L);
    submit(K);
    lane_names_from(w.domain, L + 1);
    submit(L);
    assert_int_equal(submit(L), 1);
    submit(K);
    assert_int_equal(submit(K), -1);
}

static void *frees_and_submits(void *unused)
{
    struct lane_thread *other = lane_thread_begin(w.domain);
    give(take(4 * MIB));
    enter(other, L);
    lane_leave(other);
    return unused;
}

/* While the host waits for the mark, another thread marks the lane anew. */
static void marked_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    pthread_t thread;
    if (call != FAKE_WAIT || after)
        return;
    device->meanwhile = NULL;
    assert_int_equal(pthread_create(&thread, NULL, frees_and_submits, NULL), 0);
    pthread_join(thread, NULL);
}

static void an_awaited_mark_is_not_recorded_again(void **state)
{
    (void)state;
    submit(L);
    assert_reused_at_once();
    submit(L);
    w.device.meanwhile = marked_meanwhile;
    lane_finish(w.domain);
    assert_true(marks() == 2 && w.device.events == 2 && w.device.passed == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE(captures_end_the_lane_and_keep_it_away),
        LANE(a_candidate_does_not_outlive_the_beginning_of_a_capture),
        LANE(a_stream_that_ends_leaves_its_lane),
        LANE(work_that_waits_for_a_value_is_no_lane),
        LANE(a_name_that_became_that_of_several_streams_is_on_no_books),
        LANE(another_context_joins_and_keeps_the_lane_away),
        LANE(the_end_of_another_context_makes_its_streams_join_again),
        LANE(on_a_lane_of_another_context_a_free_takes_a_fence),
        LANE(the_end_of_its_context_ends_the_lane),
        LANE(nothing_is_asked_of_a_context_while_it_is_released),
        LANE(others_wait_until_a_context_is_back),
        LANE(what_was_exported_goes_through_a_fence),
        LANE(a_mark_that_cannot_be_recorded_is_a_wait),
        LANE(an_awaited_mark_is_not_recorded_again),
        LANE(without_a_record_for_the_thread_no_lane_comes_back),
        LANE(host_work_is_waited_for_by_the_next_free),
        LANE(of_two_marks_of_host_work_at_once_neither_is_the_newer),
        LANE(a_wait_covers_nothing_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
