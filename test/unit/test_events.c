/* Events that threads note alone: their way to the ring, what a kill leaves of them, and that each
 * address keeps its order. */
#include <stdlib.h>
#include <string.h>

#include "allocator/state/record.h"
#include "allocator/thread_cache/thread_cache.h"
#include "lane_world.h"
#include "stats/events/events.h"

#define CAPACITY 256u
#define THREADS 3
static struct events recorder, *events = &recorder;
static struct events_row *rows[THREADS];
static struct cache_row counts[THREADS];
static struct thread_cache *caches[THREADS];

static int setup(void **state)
{
    size_t bytes = events_bytes(CAPACITY);
    (void)state;
    void *memory = aligned_alloc(64, bytes);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    events_start(events, memory, CAPACITY, CAPACITY, 0);
    return 0;
}

static int setup_rows(void **state)
{
    setup(state);
    for (int i = 0; i < THREADS; i++)
        rows[i] = events_row_begin(events);
    return 0;
}

static int setup_world(void **state)
{
    lane_world_setup(state);
    setup(state);
    memset(counts, 0, sizeof counts);
    domain_record(w.domain, events, NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(domain_thread_begins(w.domain, &counts[i]), 0);
        caches[i] = thread_cache_own;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(events->ring);
    return 0;
}
#define ROWS(test) cmocka_unit_test_setup_teardown(test, setup_rows, teardown)
#define WORLD(test) cmocka_unit_test_setup_teardown(test, setup_world, teardown)

static void note(int row, uint64_t address)
{
    for (uint64_t now = ticks_now(); ticks_now() == now;)
        ; /* some clocks are coarse */
    assert_true(events_row_has_room(rows[row]));
    events_note(rows[row], event_who((unsigned)row, EVENT_alloc, 0, 0), address, 512, 500);
}

static uint64_t at(uint64_t n)
{
    assert_int_equal(events->ring->event[n % CAPACITY].number, n + 1);
    return events->ring->event[n % CAPACITY].address;
}

static void test_taken_by_time(void **state)
{
    (void)state;
    static const int turns[] = {0, 0, 1, 2, 0, 1, 1, 2};
    for (uint64_t i = 0; i < 8; i++)
        note(turns[i], i);
    assert_int_equal(events->count, 0);
    events_add(events, EVENT_free, 0, 8, 512, 500, 0);
    assert_int_equal(events->count, 9);
    for (uint64_t i = 0; i < 9; i++) {
        assert_int_equal(at(i), i);
        assert_true(i == 0 || events->ring->event[i].ticks >= events->ring->event[i - 1].ticks);
    }
    assert_int_equal(events_take(events, 1), 0);
}

static void test_a_row_is_full(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < EVENTS_ALONE; i++)
        note(1, i);
    assert_false(events_row_has_room(rows[1]));
    assert_true(events_row_has_room(rows[0]));
    assert_int_equal(events_take(events, 1), EVENTS_ALONE);
    for (uint64_t i = 0; i < EVENTS_ALONE; i++)
        note(1, EVENTS_ALONE + i);
    events_row_end(events, rows[1]);
    for (uint64_t i = 0; i < 2ull * EVENTS_ALONE; i++)
        assert_int_equal(at(i), i);
    assert_ptr_equal(events_row_begin(events), rows[1]);
    assert_true(events_row_has_room(rows[1]));
}

static void test_the_trace_has_no_room(void **state)
{
    (void)state;
    events->trace = TRACE_ON;
    for (uint64_t i = 0; i < CAPACITY - 2; i++)
        events_add(events, EVENT_alloc, 0, i, 512, 500, 0);
    for (uint64_t i = 0; i < 5; i++)
        note(0, CAPACITY - 2 + i);
    assert_int_equal(events_take(events, 0), 2);
    assert_int_equal(events_take(events, 0), 0);
    assert_int_equal(at(0), 0); /* nothing is lost */
    events->written = 3;
    assert_int_equal(events_take(events, 0), 3);
    assert_int_equal(at(CAPACITY + 2), CAPACITY + 2);
}

/* The last one taken is still in its row: the killed process had put it to the ring. */
static void test_killed_while_it_took(void **state)
{
    (void)state;
    note(0, 0);
    note(1, 1);
    note(1, 2);
    events_put(events, &rows[0]->event[0]);
    events_take_over(events);
    assert_int_equal(events_take(events, 1), 2);
    assert_int_equal(events->count, 3);
    assert_int_equal(at(2), 2);
    /* and one that it had not finished there is not whole, so it comes again */
    note(2, 9);
    events_put(events, &rows[2]->event[0]);
    events->ring->event[3].number = 0;
    events_take_over(events);
    assert_int_equal(events_take(events, 1), 1);
    assert_int_equal(at(4), 9);
}

static void test_damaged_rows(void **state)
{
    (void)state;
    note(0, 7);
    rows[1]->taken = 1;
    rows[2]->noted = UINT64_MAX / 2;
    rows[0]->held = 1ull << 60;
    assert_int_equal(events_take(events, 1), 1);
    assert_int_equal(at(0), 7);
}

static enum event_action action_of(uint64_t n)
{
    return (enum event_action)(events->ring->event[n].who >> 60);
}

/* Of all addresses: a block is handed out only after it was freed, and the other way round. */
static void check_order(void)
{
    events_take(events, 1);
    for (uint64_t i = 0; i < events->count; i++) {
        enum event_action last = EVENT_free;
        for (uint64_t k = 0; k < i; k++)
            if (at(k) == at(i) && action_of(k) <= EVENT_free)
                last = action_of(k);
        if (action_of(i) <= EVENT_free)
            assert_int_not_equal(action_of(i), last);
    }
}

static void as(int i)
{
    thread_cache_own = caches[i];
}

static uint64_t get(void)
{
    uint64_t address = allocator_hit_alone(w.a, 4000);
    if (!address)
        assert_int_equal(allocator_malloc(w.a, 4000, &address), 0);
    return address;
}

static void put(uint64_t address)
{
    if (!domain_free_alone(address))
        assert_int_equal(domain_free(w.domain, address, FREED_NATIVE), 0);
}

static void test_pairs_alone(void **state)
{
    (void)state;
    as(0);
    put(get());
    uint64_t before = (events_take(events, 1), events->count);
    for (int i = 0; i < 20; i++) {
        uint64_t address = allocator_hit_alone(w.a, 4000);
        assert_true(address && domain_free_alone(address));
    }
    assert_int_equal(events->count, before);
    check_order();
    assert_int_equal(events->count, before + 40);
    const struct event *last = &events->ring->event[before + 39];
    assert_int_equal(last->requested, 4000);
    assert_int_equal(last->size, 4096);
    assert_int_equal((uint32_t)last->who, events_thread());
    /* A full row: by the lock, and on again. */
    for (int i = 0; i < 40; i++)
        put(get());
    check_order();
    assert_int_equal(events->count, before + 120);
}

/* What one notes as handed out, another frees: not alone, as the first one's row may be looked
 * at before it holds the one event, and the other's after it holds the next. */
static void test_freed_by_another(void **state)
{
    (void)state;
    as(1);
    put(get());
    as(0);
    put(get());
    as(2);
    put(get());
    for (int i = 0; i < 10; i++) {
        as(2);
        uint64_t address = allocator_hit_alone(w.a, 4000);
        assert_true(address);
        as(i % 2);
        assert_false(domain_free_alone(address));
        put(address);
        as(2);
        put(get());
        check_order();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROWS(test_taken_by_time),        ROWS(test_a_row_is_full), ROWS(test_the_trace_has_no_room),
        ROWS(test_killed_while_it_took), ROWS(test_damaged_rows),  WORLD(test_pairs_alone),
        WORLD(test_freed_by_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
