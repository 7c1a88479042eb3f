/* Lanes, rule by rule: what a free may do, what each submission asks of the driver, and when a lane
 * comes back. The device passes marks only when told to. */
#include "world.h"

#include "allocator/domain.h"

enum { L = 16, K = 32, M = 48 }; /* streams */
#define HERE ((uint64_t)(uintptr_t)&w.device)

static struct lane_thread *self;
static uint64_t joins, barriers, joined_mark, contexts[M + 1];
static int capturing[M + 1];

static uint64_t context_of(const struct lane_stream *stream)
{
    return contexts[stream->key];
}

static int is_capturing(const struct lane_stream *stream)
{
    return capturing[stream->key];
}

static int join(const struct lane_stream *stream, void *event)
{
    (void)stream;
    joins++;
    joined_mark = *(const uint64_t *)event; /* the fake device's number */
    return 0;
}

static int barrier(void)
{
    barriers++;
    return 0;
}

static const struct lane_ops ops = {
    .context = context_of, .is_capturing = is_capturing, .join = join, .barrier = barrier};

static int setup(void **state)
{
    world_setup(state);
    w.device.instant = 0;
    joins = barriers = joined_mark = 0;
    for (int key = 0; key <= M; key++) {
        contexts[key] = HERE;
        capturing[key] = 0;
    }
    lane_start(w.domain, &ops);
    self = lane_thread_begin(w.domain);
    return 0;
}

static int enter(struct lane_thread *thread, uint64_t key)
{
    const struct lane_stream stream = {.key = key};
    return lane_enter(lane_state(w.domain), thread, key) ? -1
                                                         : lane_submit(w.domain, thread, &stream);
}

/* A submission: -1 seen at a glance, 0 no work, 1 put on the books anew. */
static int submit(uint64_t key)
{
    int way = enter(self, key);
    lane_leave(self);
    return way;
}

static int mode(void)
{
    return (int)(atomic_load(&lane_state(w.domain)->word) & LANE_MODE);
}

static uint64_t marks(void)
{
    return COUNTER(num_lane_marks);
}

/* The block freed is the next one handed out. */
static void assert_reused_at_once(void)
{
    uint64_t block = take(4 * MIB);
    give(block);
    assert_true(take(4 * MIB) == block);
    give(block);
}

static void assert_not_reused(void)
{
    uint64_t block = take(4 * MIB);
    give(block);
    uint64_t other = take(4 * MIB);
    assert_true(other != block);
}

/* Frees until a candidate has been made and has passed. */
static void pass_candidate(void)
{
    give(take(512));
    pass_all();
    domain_poll(w.domain);
}

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

static uint64_t freed_meanwhile;

static void free_meanwhile(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RECORD || !after || !freed_meanwhile)
        return;
    uint64_t block = freed_meanwhile;
    freed_meanwhile = 0;
    device->meanwhile = NULL;
    assert_int_equal(domain_free(w.domain, block, FREED_NATIVE), 0);
}

static void a_free_while_the_mark_is_recorded_is_not_covered_by_it(void **state)
{
    (void)state;
    uint64_t block = take(512);
    freed_meanwhile = take(512);
    submit(L);
    give(block);
    w.device.meanwhile = free_meanwhile;
    submit(L);
    assert_true(marks() == 2);
    submit(K);
    assert_true(joins == 1 && joined_mark == 2);
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
    assert_int_equal(domain_free(w.domain, block, FREE_IN_STREAM), 0);
    assert_true(COUNTER(num_fences) == fences + 1 && w.device.calls[FAKE_WAIT] == 0);
    submit(L);
    submit(K);
    assert_true(marks() == 0 && joins == 0);
    fake_advance(1000000);
    w.device.stuck = 1;
    take(4 * MIB);
    w.device.stuck = 0;
}

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
    const struct lane_stream stream = {.key = L};
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

#define LANE(test) cmocka_unit_test_setup(test, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE(with_nothing_outstanding_a_free_is_reused_and_needs_no_mark),
        LANE(on_a_lane_a_free_is_reused_and_marked_before_the_next_submission),
        LANE(each_other_stream_joins_the_early_mark_once),
        LANE(a_dirty_lane_is_marked_before_it_is_left),
        LANE(without_frees_nobody_joins),
        LANE(back_to_the_only_stream_used_since),
        LANE(back_to_nothing_outstanding),
        LANE(two_streams_used_since_are_no_lane),
        LANE(nothing_is_restored_over_a_submission_in_flight),
        LANE(a_free_while_the_mark_is_recorded_is_not_covered_by_it),
        LANE(a_mark_is_news_to_every_thread),
        LANE(a_free_in_a_stream_takes_a_fence_that_may_be_waited_for_a_while),
        LANE(captures_end_the_lane_and_keep_it_away),
        LANE(a_stream_that_ends_leaves_its_lane),
        LANE(another_context_joins_and_keeps_the_lane_away),
        LANE(the_end_of_another_context_makes_its_streams_join_again),
        LANE(on_a_lane_of_another_context_a_free_takes_a_fence),
        LANE(the_end_of_its_context_ends_the_lane),
        LANE(what_was_exported_goes_through_a_fence),
        LANE(a_mark_that_cannot_be_recorded_is_a_wait),
        LANE(without_a_record_for_the_thread_no_lane_comes_back),
        LANE(host_work_is_waited_for_by_the_next_free),
        LANE(of_two_marks_of_host_work_at_once_neither_is_the_newer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
