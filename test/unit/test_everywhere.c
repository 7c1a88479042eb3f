/* Memory that the host and every context use (allocator/everywhere.h): when a freed block of it may
 * be handed out again. Two contexts, each a fake device; the memory comes from a third one. */
#include "lane_world.h"

#include "allocator/everywhere.h"
#include "allocator/state/enter.h"

#define BLOCK (10 * MIB) /* a segment of its own: reuse shows as the same address */

static struct fake_device other, host;
static struct device_stats other_stats, host_stats;
static struct domain *pinned;
static struct allocator *b, *p;

static int host_alloc(void *device, uint64_t bytes, uint64_t *address)
{
    (void)device;
    return fake_ops.segment_alloc(&host, bytes, address);
}

static int host_free(void *device, uint64_t address, uint64_t bytes)
{
    (void)device;
    return fake_ops.segment_free(&host, address, bytes);
}

static int host_record(void *device, void **event)
{
    return everywhere_record(w.domain, (uint64_t)(uintptr_t)device, event);
}

static int host_wait(void *device, void *event, uint64_t timeout_ns)
{
    return everywhere_wait(w.domain, (uint64_t)(uintptr_t)device, event, timeout_ns);
}

static int host_query(void *device, void *event)
{
    return host_wait(device, event, 0);
}

static int host_synchronize(void *device)
{
    return everywhere_synchronize(w.domain, (uint64_t)(uintptr_t)device);
}

static int host_failed(void *device, int code)
{
    (void)device;
    return code == FAKE_BROKEN;
}

static struct device_ops ops;

/* The pool belongs to the first context. */
static void remake(const char *conf)
{
    lane_world_remake(conf);
    fake_init(&other, UINT64_MAX);
    fake_init(&host, UINT64_MAX);
    other_stats = host_stats = (struct device_stats){0};
    b = world_add(&other, &other_stats);
    w.device.instant = other.instant = 0;
    ops = fake_ops;
    ops.segment_alloc = host_alloc;
    ops.segment_free = host_free;
    ops.range_reserve = NULL;
    ops.fence_record = host_record;
    ops.fence_query = host_query;
    ops.fence_wait = host_wait;
    ops.control_record = NULL;
    ops.synchronize = host_synchronize;
    ops.failed = host_failed;
    pinned = domain_create(&w.options);
    assert_non_null(pinned);
    p = allocator_create(pinned, &ops, &w.device, HERE, 0, &host_stats, UINT64_MAX);
    assert_non_null(p);
}

static int setup(void **state)
{
    (void)state;
    remake("");
    return 0;
}

static uint64_t take_pinned(void)
{
    uint64_t address = 0;
    assert_int_equal(allocator_malloc(p, BLOCK, &address), 0);
    assert_true(allocator_is_valid(p) && allocator_is_valid(w.a) && allocator_is_valid(b));
    return address;
}

static int try_give_pinned(uint64_t address)
{
    int idle, code = everywhere_settle(w.domain, HERE, &idle);
    int error = domain_free(pinned, address, idle ? FREED_IDLE : FREED_NATIVE);
    assert_true(allocator_is_valid(p) && allocator_is_valid(w.a) && allocator_is_valid(b));
    return code ? code : error;
}

static void give_pinned(uint64_t address)
{
    assert_int_equal(try_give_pinned(address), 0);
}

/* Is the block that was just freed handed out again? */
static int comes_again(uint64_t block)
{
    uint64_t next = take_pinned();
    if (next != block)
        assert_int_equal(domain_free(pinned, next, FREED_LATE), 0);
    return next == block;
}

static void pass(struct fake_device *device)
{
    device->passed = device->recorded;
}

static void idle_memory_comes_again_at_once(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    give_pinned(block);
    assert_true(comes_again(block));
    assert_int_equal(w.device.calls[FAKE_RECORD] + other.calls[FAKE_RECORD], 0);
}

/* Also on a lane: the host waits for no stream. */
static void the_work_of_a_lane_is_waited_for(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    give_pinned(block);
    assert_int_equal(mode(), LANE_SINGLE);
    pass(&other);
    assert_false(comes_again(block));
    pass(&w.device);
    assert_true(comes_again(block));
}

static void the_work_of_another_context_is_waited_for(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    give_pinned(block);
    pass(&w.device);
    assert_false(comes_again(block));
    pass(&other);
    assert_true(comes_again(block));
}

/* Without lanes nothing is known to be idle. */
static void without_lanes_each_free_has_its_point(void **state)
{
    (void)state;
    remake("");
    lane_watch(w.domain);
    uint64_t block = take_pinned();
    give_pinned(block);
    assert_int_equal(w.device.calls[FAKE_RECORD], 1);
    assert_int_equal(other.calls[FAKE_RECORD], 1);
}

static void events_are_recorded_again(void **state)
{
    (void)state;
    submit(L);
    for (int i = 0; i < 20; i++) {
        give_pinned(take_pinned());
        pass(&w.device);
        pass(&other);
    }
    assert_true(w.device.events <= 2 && other.events <= 2);
    assert_int_equal(host.calls[FAKE_ALLOC], 1);
}

static void a_context_that_ends_holds_nothing_up(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    give_pinned(block);
    pass(&w.device);
    allocator_forget(b);
    assert_true(comes_again(block));
}

/* It may end, or not: nothing is asked in it, and the block waits. */
static void a_context_that_is_away_is_not_called_into(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    allocator_put_away(b, 1);
    allocator_own.ends++; /* this thread does not wait for itself */
    give_pinned(block);
    assert_int_equal(other.calls[FAKE_RECORD], 0);
    pass(&w.device);
    assert_false(comes_again(block));
    allocator_own.ends--;
    allocator_put_away(b, 0);
    domain_captures_ended(pinned);
    assert_int_equal(other.calls[FAKE_RECORD], 1);
    pass(&w.device);
    pass(&other);
    assert_true(comes_again(block));
}

static void a_context_that_is_away_is_not_asked(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    give_pinned(block);
    pass(&w.device);
    pass(&other);
    allocator_put_away(b, 1);
    uint64_t asked = other.calls[FAKE_QUERY];
    assert_false(comes_again(block));
    assert_int_equal(other.calls[FAKE_QUERY], asked);
    allocator_put_away(b, 0);
    assert_true(comes_again(block));
}

static void its_own_context_ends_with_the_memory(void **state)
{
    (void)state;
    uint64_t held = take_pinned(), block = take_pinned();
    submit(L);
    give_pinned(block);
    assert_int_equal(allocator_forget(p), 1);
    allocator_bury(p);
    assert_int_equal(domain_free(pinned, held, FREED_NATIVE), ALLOCATOR_UNKNOWN);
    assert_int_equal(stats_current_all(&host_stats, STAT_reserved_bytes), 0);
}

static void frees_during_a_capture_wait_for_its_end(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    w.device.code[FAKE_RECORD] = other.code[FAKE_RECORD] = DEVICE_DEFERRED;
    give_pinned(block);
    w.device.code[FAKE_RECORD] = other.code[FAKE_RECORD] = 0;
    pass(&w.device);
    pass(&other);
    assert_false(comes_again(block));
    domain_captures_ended(pinned);
    pass(&w.device);
    pass(&other);
    assert_true(comes_again(block));
}

static void a_broken_context_has_no_work(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    other.code[FAKE_RECORD] = FAKE_BROKEN;
    give_pinned(block);
    pass(&w.device);
    assert_true(comes_again(block));
}

static void its_own_broken_context_says_so(void **state)
{
    (void)state;
    uint64_t block = take_pinned(), address;
    submit(L);
    w.device.code[FAKE_RECORD] = w.device.code[FAKE_SYNC] = FAKE_BROKEN;
    assert_int_equal(try_give_pinned(block), FAKE_BROKEN);
    assert_int_equal(allocator_malloc(p, BLOCK, &address), ALLOCATOR_PASS);
}

/* An error that passes shows nowhere, and the block waits. */
static void an_error_that_passes(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    other.code[FAKE_RECORD] = FAKE_INVALID;
    assert_int_equal(try_give_pinned(block), 0);
    other.code[FAKE_RECORD] = 0;
    pass(&w.device);
    assert_false(comes_again(block));
}

/* As natively the free waits for copies to host memory. */
static void work_that_the_host_sees_is_waited_for(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    allocator_note_host_work(b);
    give_pinned(block);
    assert_int_equal(w.device.calls[FAKE_WAIT] + other.calls[FAKE_WAIT], 0); /* another context's */
    block = take_pinned();
    submit(L);
    allocator_note_host_work(w.a);
    give_pinned(block);
    assert_int_equal(w.device.calls[FAKE_WAIT], 1);
}

static void strict_frees_wait_for_all_contexts(void **state)
{
    (void)state;
    remake("free_mode:strict");
    lane_watch(w.domain); /* there are no lanes */
    uint64_t block = take_pinned();
    give_pinned(block);
    assert_int_equal(w.device.calls[FAKE_SYNC], 1);
    assert_int_equal(other.calls[FAKE_WAIT], 1); /* with a limit */
    other.instant = 1;
    give_pinned(take_pinned());
    assert_true(comes_again(block));
}

/* The work of another context may need this thread. */
static void another_context_is_waited_for_with_a_limit(void **state)
{
    (void)state;
    void *point = NULL;
    assert_int_equal(everywhere_record(w.domain, HERE, &point), 0);
    other.stuck = 1;
    assert_int_equal(everywhere_wait(w.domain, HERE, point, DEVICE_FOREVER), DEVICE_NOT_READY);
    pass(&other);
    assert_int_equal(everywhere_wait(w.domain, HERE, point, DEVICE_FOREVER), 0);
}

static void a_driver_without_events(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    w.device.code[FAKE_RECORD] = other.code[FAKE_RECORD] = DEVICE_UNSUPPORTED;
    give_pinned(block);
    assert_int_equal(w.device.calls[FAKE_SYNC], 1);
    assert_int_equal(other.calls[FAKE_SYNC], 1);
    assert_true(comes_again(block));
}

/* Idle memory goes back only when all contexts are idle: the driver's free waits for work. */
static void idle_memory_goes_back(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    submit(L);
    give_pinned(block);
    assert_int_equal(domain_empty_cache(pinned, 0), 0);
    w.device.instant = other.instant = 1;
    assert_int_equal(domain_empty_cache(pinned, 0), BLOCK);
    assert_int_equal(host.calls[FAKE_FREE], 1);
}

static void a_full_host_gets_idle_memory_back(void **state)
{
    (void)state;
    host.capacity = 3 * BLOCK;
    uint64_t one = take_pinned(), two = take_pinned(), address;
    give_pinned(one);
    give_pinned(two);
    other.instant = w.device.instant = 1;
    assert_int_equal(allocator_malloc(p, 2 * BLOCK + MIB, &address), 0);
    assert_int_equal(host.used, 2 * BLOCK + 2 * MIB);
    uint64_t ever = address;
    assert_int_equal(allocator_malloc(p, 2 * BLOCK, &address), FAKE_OOM);
    assert_int_equal(domain_free(pinned, ever, FREED_NATIVE), 0);
}

static void wrong_frees(void **state)
{
    (void)state;
    uint64_t block = take_pinned();
    assert_int_equal(try_give_pinned(block + 512), ALLOCATOR_INVALID);
    give_pinned(block);
    assert_int_equal(try_give_pinned(block), ALLOCATOR_INVALID);
    assert_int_equal(try_give_pinned(12345), ALLOCATOR_UNKNOWN);
    assert_int_equal(stats_get(&host_stats, COUNTER_num_double_frees), 2);
}

#define EVERYWHERE(test) cmocka_unit_test_setup(test, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EVERYWHERE(idle_memory_comes_again_at_once),
        EVERYWHERE(the_work_of_a_lane_is_waited_for),
        EVERYWHERE(the_work_of_another_context_is_waited_for),
        EVERYWHERE(without_lanes_each_free_has_its_point),
        EVERYWHERE(events_are_recorded_again),
        EVERYWHERE(a_context_that_ends_holds_nothing_up),
        EVERYWHERE(a_context_that_is_away_is_not_called_into),
        EVERYWHERE(a_context_that_is_away_is_not_asked),
        EVERYWHERE(its_own_context_ends_with_the_memory),
        EVERYWHERE(frees_during_a_capture_wait_for_its_end),
        EVERYWHERE(a_broken_context_has_no_work),
        EVERYWHERE(its_own_broken_context_says_so),
        EVERYWHERE(an_error_that_passes),
        EVERYWHERE(work_that_the_host_sees_is_waited_for),
        EVERYWHERE(strict_frees_wait_for_all_contexts),
        EVERYWHERE(another_context_is_waited_for_with_a_limit),
        EVERYWHERE(a_driver_without_events),
        EVERYWHERE(idle_memory_goes_back),
        EVERYWHERE(a_full_host_gets_idle_memory_back),
        EVERYWHERE(wrong_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
