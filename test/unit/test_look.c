/* Looks: work that does not pass the library is found, and frees are believed again only where the
 * device has shown that nothing runs. */
#include "lane_world.h"

#include "allocator/reuse/lane.h"
#include "allocator/reuse/look.h"

enum { LOOKS = 64, MOST_FREES = 4096, WAIT_NS = 100000 }; /* as in look.c */

static int said;              /* how often unseen work was said */
static int lane_is_busy;      /* the event on the lane's stream does not pass */
static enum lane_sight sight; /* what a look at the objects finds */
static struct lane_ops looking;

static int record(const struct lane_stream *stream, void **event)
{
    (void)stream;
    int before = w.device.busy_elsewhere;
    w.device.busy_elsewhere = lane_is_busy;
    fake_ops.control_record(&w.device, event);
    w.device.busy_elsewhere = before;
    return 0;
}

static enum lane_sight look(void)
{
    return sight;
}

static void unseen(void)
{
    said++;
}

static int setup(void **state)
{
    lane_world_setup(state);
    looking = *w.domain->lane.ops;
    looking.record = record;
    looking.look_around = look;
    looking.unseen = unseen;
    lane_start(w.domain, &looking);
    look_allowance = (struct look_allowance){0};
    said = lane_is_busy = 0;
    sight = SIGHT_CLEAR;
    return 0;
}

static void free_again(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        give(take(4 * MIB));
        fake_advance(WAIT_NS);
    }
}

/* Frees on an idle device until frees are believed. */
static void come_to_believe(void)
{
    w.device.instant = 1;
    free_again(LOOKS);
    w.device.instant = 0;
}

static void the_first_frees_each_wait_for_an_event(void **state)
{
    (void)state;
    w.device.instant = 1;
    for (unsigned i = 0; i < LOOKS; i++) {
        uint64_t block = take(4 * MIB), recorded = w.device.recorded;
        give(block);
        assert_true(w.device.recorded == recorded + 1);
    }
    uint64_t recorded = w.device.recorded;
    free_again(20);
    assert_true(w.device.recorded < recorded + 20 && COUNTER(num_fence_frees) == 0 && said == 0);
}

static void later_looks_come_at_random_and_bounded_intervals(void **state)
{
    unsigned longest = 0, looks = 0, since = 0;
    (void)state;
    w.device.instant = 1;
    free_again(50 * MOST_FREES); /* while they get rarer */
    for (unsigned i = 0; i < 40 * MOST_FREES; i++) {
        uint64_t recorded = w.device.recorded;
        give(take(4 * MIB));
        since++;
        if (w.device.recorded == recorded)
            continue;
        looks++;
        longest = since > longest ? since : longest;
        since = 0;
    }
    assert_true(looks > 40 && looks < 160 && longest > MOST_FREES / 2 && longest <= MOST_FREES + 1);
}

static void under_unseen_work_no_block_is_reused_at_once(void **state)
{
    (void)state;
    assert_not_reused();
    free_again(10);
    assert_true(said == 1 && w.domain->lane.past);
    w.device.instant = 1;
    uint64_t waits = w.device.calls[FAKE_SYNC], fences = COUNTER(num_fences);
    free_again(10);
    assert_true(w.device.calls[FAKE_SYNC] >= waits + 10 && COUNTER(num_fences) == fences + 10);
    assert_true(COUNTER(num_lane_frees) == 0 && said == 1);
}

static void unseen_work_is_found_later_too(void **state)
{
    (void)state;
    come_to_believe();
    for (unsigned i = 0; i < 3 * MOST_FREES && !said; i++)
        free_again(1);
    assert_true(said == 1 && w.domain->lane.past);
}

static void a_late_event_alone_proves_nothing(void **state)
{
    (void)state;
    w.device.busy_elsewhere = 1;
    assert_not_reused();
    free_again(20);
    assert_true(said == 0 && mode() == LANE_NONE);
    pass_all();
    w.device.busy_elsewhere = 0;
    come_to_believe();
    w.device.instant = 1;
    uint64_t recorded = w.device.recorded;
    free_again(20);
    assert_true(w.device.recorded < recorded + 20 && said == 0);
}

static void a_late_look_begins_the_looks_anew(void **state)
{
    (void)state;
    come_to_believe();
    w.device.instant = 1;
    do
        free_again(1);
    while (look_allowance.frees);
    w.device.instant = 0; /* at the next look work is outstanding, for a while */
    unsigned frees = 0;
    for (; COUNTER(num_fences) == 0 && frees < MOST_FREES; frees++)
        free_again(1);
    assert_true(frees < MOST_FREES && said == 0);
    pass_all();
    w.device.instant = 1;
    uint64_t recorded = w.device.recorded;
    fake_advance(WAIT_NS);
    free_again(LOOKS / 2);
    assert_true(w.device.recorded >= recorded + LOOKS / 2 - 1 && said == 0);
}

static void work_beside_a_lane_is_found(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 200 && !said; i++) {
        submit(L);
        give(take(4 * MIB));
        fake_advance(WAIT_NS);
    }
    assert_true(said == 1 && w.domain->lane.past);
}

static void a_busy_lane_proves_nothing(void **state)
{
    (void)state;
    lane_is_busy = 1;
    w.device.busy_elsewhere = 1;
    for (unsigned i = 0; i < 200; i++) {
        submit(L);
        give(take(4 * MIB));
        fake_advance(WAIT_NS);
    }
    assert_true(said == 0 && mode() == LANE_SINGLE && COUNTER(num_lane_frees) == 200);
}

static void while_an_object_is_loaded_frees_take_fences(void **state)
{
    (void)state;
    come_to_believe();
    sight = SIGHT_LOADING;
    lane_watch(w.domain);
    assert_not_reused();
    sight = SIGHT_CLEAR;
    w.device.instant = 1;
    uint64_t recorded = w.device.recorded, before = COUNTER(num_lane_frees);
    free_again(2);
    assert_true(COUNTER(num_lane_frees) == before + 2);
    assert_true(w.device.recorded == recorded + 2); /* looks begin anew */
}

static void what_may_have_passed_is_waited_for_once(void **state)
{
    (void)state;
    submit(L);
    sight = SIGHT_MISSED;
    lane_watch(w.domain);
    uint64_t waits = w.device.calls[FAKE_SYNC];
    give(take(4 * MIB));
    give(take(4 * MIB));
    assert_true(w.device.calls[FAKE_SYNC] == waits + 1 && COUNTER(num_lane_frees) == 2);
}

static void a_way_past_ends_reuse_at_once(void **state)
{
    (void)state;
    submit(L);
    give(take(4 * MIB));
    sight = SIGHT_PAST;
    lane_watch(w.domain);
    uint64_t waits = w.device.calls[FAKE_SYNC];
    give(take(4 * MIB));
    sight = SIGHT_CLEAR;
    submit(L);
    give(take(4 * MIB));
    assert_true(w.device.calls[FAKE_SYNC] == waits + 2 && COUNTER(num_lane_frees) == 1);
}

#define LOOK(test) cmocka_unit_test_setup(test, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOK(the_first_frees_each_wait_for_an_event),
        LOOK(later_looks_come_at_random_and_bounded_intervals),
        LOOK(under_unseen_work_no_block_is_reused_at_once),
        LOOK(unseen_work_is_found_later_too),
        LOOK(a_late_event_alone_proves_nothing),
        LOOK(a_late_look_begins_the_looks_anew),
        LOOK(work_beside_a_lane_is_found),
        LOOK(a_busy_lane_proves_nothing),
        LOOK(while_an_object_is_loaded_frees_take_fences),
        LOOK(what_may_have_passed_is_waited_for_once),
        LOOK(a_way_past_ends_reuse_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
