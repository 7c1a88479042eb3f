/* Chunks that are divided before a request fails. */
#include "handle_world.h"
#include "lane_world.h"

#include "allocator/pool/arena.h"
#include "allocator/state/domain.h"
#include "allocator/share.h"

#define CAPACITY (14 * MIB)

#define SPAN 8 /* chunks of the largest handle */

static uint64_t block[5]; /* the last one is of a chunk, and stays */

/* Four blocks of three MiB side by side, in chunks of two: each has a chunk, and half of one. Behind them no
 * memory is absent. */
static int setup(void **state)
{
    (void)state;
    world_remake("expandable_segments:True,large_segment_size_mb:2", CAPACITY);
    for (int i = 0; i < 4; i++)
        block[i] = take(3 * MIB);
    block[4] = take(2 * MIB);
    assert_int_equal(w.device.used, CAPACITY);
    return 0;
}

static void nothing_is_lost(void)
{
    give(block[4]);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(w.a->arena->divided, 0);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    assert_int_equal(CURRENT(segment), 0);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.mapped, 0);
}

/* Of two blocks that are freed the chunks are idle, and one corner or two serve. */
static const struct {
    int first, second;
    uint64_t size;
    uint32_t corners;
} cases[] = {{0, 2, 5, 1}, {1, 3, 5, 1}, {0, 3, 6, 2}, {0, 3, 5, 1}};

static void corners_serve(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup(NULL);
        give(block[cases[i].first]);
        give(block[cases[i].second]);
        uint64_t maps = CALLS(MAP), large = take(cases[i].size * MIB);
        assert_int_equal(w.a->arena->divided, cases[i].corners);
        assert_int_equal(CALLS(MAP), maps + 2 + cases[i].corners);
        assert_int_equal(w.device.used, CAPACITY);
        assert_int_equal(CURRENT(reserved_bytes), CAPACITY);
        assert_int_equal(COUNTER(num_ooms), 0);
        for (int k = 0; k < 4; k++)
            assert_true(large + cases[i].size * MIB <= block[k] || block[k] + 3 * MIB <= large);
        give(large);
        for (int k = 0; k < 4; k++)
            if (k != cases[i].first && k != cases[i].second)
                give(block[k]);
        take(CAPACITY - 2 * MIB); /* all chunks are one again */
        assert_int_equal(w.a->arena->divided, 0);
        assert_int_equal(w.device.used, CAPACITY);
    }
}

/* Nothing is divided for what has room otherwise, or would have none even so; and a chunk only once. */
static void only_what_else_would_fail(void **state)
{
    (void)state;
    give(block[0]);
    give(block[3]);
    give(take(4 * MIB));
    assert_int_equal(w.a->arena->divided, 0);
    take(5 * MIB + 512);
    assert_int_equal(w.a->arena->divided, 2);
    take(MIB - 512); /* what is left of the second corner */
    give(block[1]);
    take(2 * MIB);
    assert_int_equal(try_take(MIB + 512), FAKE_OOM); /* the first corner's other half has less */
    setup(NULL);
    give(block[0]);
    give(block[3]);
    uint64_t maps = CALLS(MAP);
    assert_int_equal(try_take(6 * MIB + 512), FAKE_OOM);
    assert_int_equal(w.a->arena->divided, 0);
    assert_int_equal(CALLS(MAP), maps);
}

/* Whoever is freed first, what is left of the chunk serves others meanwhile. */
static void halves_are_as_any(void **state)
{
    (void)state;
    for (int large_first = 0; large_first < 2; large_first++) {
        setup(NULL);
        give(block[0]);
        give(block[3]);
        uint64_t large = take(6 * MIB);
        if (large_first)
            give(large);
        give(block[1]);
        give(block[2]);
        take(MIB + 512);
        assert_int_equal(w.device.used, CAPACITY);
        if (!large_first)
            give(large);
        take(8 * MIB);
        assert_int_equal(w.device.used, CAPACITY);
        assert_int_equal(COUNTER(num_ooms), 0);
    }
}

/* Whatever call the driver refuses, or all of them (call 0), and if it does not undo the others (stuck): the
 * request is served on another try, or fails, and what could be undone is lost to nobody. */
static void refuse(enum fake_call kind, uint64_t call, int stuck)
{
    uint64_t large = 0, calls;
    setup(NULL);
    give(block[0]);
    give(block[3]);
    calls = w.device.calls[kind];
    w.device.failing = kind;
    w.device.failing_number = calls + call;
    w.device.code[kind] = call ? 0 : FAKE_INVALID;
    w.device.code[FAKE_UNMAP] = stuck ? FAKE_INVALID : 0;
    int code = allocator_malloc(w.a, 6 * MIB, &large);
    assert_true(code == 0 || code == FAKE_OOM);
    assert_true(call || code);
    assert_true(w.device.calls[kind] >= calls + call);
    w.device.code[kind] = w.device.code[FAKE_UNMAP] = 0;
    w.device.failing_number = 0;
    assert_true(allocator_is_valid(w.a));
    if (!code)
        give(large);
    give(block[1]);
    give(block[2]);
    give(take(3 * MIB));
    if (!stuck)
        nothing_is_lost();
    else
        allocator_forget(w.a), allocator_bury(w.a);
    assert_int_equal(w.device.mapped, 0);
    assert_int_equal(w.device.used, 0);
}

static void what_the_driver_refuses_costs_nothing(void **state)
{
    (void)state;
    for (int stuck = 0; stuck < 2; stuck++) {
        for (uint64_t call = 0; call <= 4; call++)
            refuse(FAKE_MAP, call, stuck);
        refuse(FAKE_ALLOW, 0, stuck);
        refuse(FAKE_ALLOW, 1, stuck);
    }
}

static void a_context_that_ends_leaves_nothing(void **state)
{
    const enum fake_call calls[] = {FAKE_MAP, FAKE_ALLOW};
    (void)state;
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        setup(NULL);
        give(block[0]);
        give(block[3]);
        end_context_at(calls[i]);
        assert_int_equal(try_take(6 * MIB), ALLOCATOR_PASS);
        assert_int_equal(CURRENT(reserved_bytes), 0);
        allocator_bury(w.a);
        assert_int_equal(w.device.used, 0);
        assert_int_equal(w.device.mapped, 0);
        assert_int_equal(w.device.ranges, 0);
    }
}

static enum fake_call awaited;

/* Of a chunk that is being divided the rest becomes reusable, and somebody looks for memory. */
static void another_frees(struct fake_device *device, enum fake_call call, int after)
{
    if (call != awaited || after)
        return;
    device->meanwhile = NULL;
    assert_int_equal(domain_free(w.domain, block[1], FREED_NATIVE), 0);
    assert_int_equal(domain_free(w.domain, block[2], FREED_NATIVE), 0);
    domain_poll(w.domain);
    domain_empty_cache(w.domain, 1);
    block[1] = take(MIB + 512);
}

static void others_free_the_rest_meanwhile(void **state)
{
    const enum fake_call calls[] = {FAKE_MAP, FAKE_ALLOW};
    (void)state;
    for (unsigned i = 0; i < 2 * sizeof calls / sizeof *calls; i++) {
        uint64_t large = 0;
        setup(NULL);
        give(block[0]);
        give(block[3]);
        awaited = calls[i / 2];
        w.device.meanwhile = another_frees;
        if (i % 2)
            w.device.code[awaited] = FAKE_INVALID;
        int code = allocator_malloc(w.a, 6 * MIB, &large);
        w.device.code[awaited] = 0;
        assert_null(w.device.meanwhile);
        assert_true(allocator_is_valid(w.a));
        if (!code) {
            assert_true(large + 6 * MIB <= block[1] || block[1] + MIB + 512 <= large);
            give(large);
        }
        give(block[1]);
        nothing_is_lost();
    }
}

/* What is set on one half is on the other: nothing is taken of it, and the chunk goes once both are free. */
static void both_halves_are_pinned(void **state)
{
    (void)state;
    for (int neighbour = 0; neighbour < 2; neighbour++) {
        struct block_place place;
        setup(NULL);
        give(block[0]);
        give(block[3]);
        uint64_t large = take(6 * MIB), marked = neighbour ? block[1] : large;
        assert_int_equal(domain_mark(w.domain, marked, BLOCK_PINNED, &place), 0);
        assert_true(allocator_is_valid(w.a));
        give(neighbour ? large : block[1]);
        uint64_t whole = take((neighbour ? 4 : 2) * MIB), corner = 0;
        if (neighbour) /* the one that it shared with block 2 */
            corner = take(MIB - 512);
        assert_int_equal(try_take(MIB - 512), FAKE_OOM);
        give(marked);
        give(whole);
        if (corner)
            give(corner);
        give(block[2]);
        nothing_is_lost();
    }
}

/* Both slots of a chunk are lent by its one handle. */
static uint64_t handles[8];
static int handle_count;

static int note_handle(void *context, uint64_t handle, uint64_t bytes)
{
    (void)context;
    assert_int_equal(bytes, 2 * MIB);
    handles[handle_count++] = handle;
    return 0;
}

static void halves_are_lent(void **state)
{
    struct block_place place;
    struct block_loan loan;
    (void)state;
    give(block[0]);
    give(block[3]);
    uint64_t large = take(6 * MIB);
    assert_int_equal(domain_mark(w.domain, block[1], BLOCK_LENT, &place), 0);
    assert_int_equal(domain_lend(w.domain, block[1], place.name, &loan, note_handle, NULL), 0);
    assert_int_equal(loan.offset, MIB);
    assert_int_equal(loan.bytes, 4 * MIB);
    assert_int_equal(domain_mark(w.domain, large, BLOCK_LENT, &place), 0);
    assert_int_equal(domain_lend(w.domain, large, place.name, &loan, note_handle, NULL), 0);
    assert_int_equal(loan.offset, MIB);
    assert_int_equal(loan.bytes, 8 * MIB);
    assert_int_equal(handle_count, 6);
    assert_int_equal(handles[0],
                     handles[5]); /* the begin of block 1's is the end of the large one's */
}

/* No mapping is taken down that work may use: of a slot that was left a moment ago. */
static void work_keeps_its_mappings(void **state)
{
    lane_world_setup(state);
    const struct lane_ops *ops = w.domain->lane.ops;
    setup(NULL);
    lane_start(w.domain, ops);
    w.device.instant = 0;
    give(block[0]);
    give(block[3]);
    uint64_t moved = take(4 * MIB); /* two chunks, which go home after it */
    give(moved);
    uint64_t large = take(6 * MIB);
    assert_int_equal(w.a->arena->divided, 2);
    assert_int_equal(CALLS(UNMAP), 0);
    assert_true(large >= moved + 4 * MIB);
}

/* A corner is mapped where a handle of several chunks was, and that fails: those slots were all left when they
 * were, and can be used, or not, as one. */
static void what_was_mapped_there_is_one(void **state)
{
    lane_world_setup(state);
    const struct lane_ops *ops = w.domain->lane.ops;
    uint64_t failed = 0;
    handle_world_remake("expandable_segments:True", 64 * GIB);
    lane_start(w.domain, ops);
    uint64_t large = take(BLOCK);
    policy.handle_part = UINT64_MAX; /* handles of a chunk */
    for (int i = 0; i < 4; i++)
        block[i] = take(3 * MIB);
    policy_reset();
    give(large);
    take(BLOCK + CHUNK); /* has those handles, whose old mappings stay */
    w.device.capacity = w.device.used;
    give(block[1]);
    give(block[3]);
    for (int i = 0; i < 4; i++) /* until all slots that were left so far are done with */
        domain_empty_cache(w.domain, 0);
    w.device.instant = 0;
    w.device.code[FAKE_CREATE] = FAKE_OOM; /* another process was faster */
    assert_int_equal(allocator_malloc(w.a, 5 * MIB, &failed), FAKE_OOM);
    w.device.code[FAKE_CREATE] = 0;
    const struct slot *slot = w.a->arena->slot;
    assert_true(slot[0].chunk && slot[SPAN - 1].chunk == slot[0].chunk + SPAN - 1);
    for (int i = 1; i < SPAN; i++)
        assert_int_equal(slot[i].since, slot[0].since);
    take(5 * MIB);
}

/* Once large blocks are the driver's own, and it has no more. */
static void at_last_they_serve_too(void **state)
{
    (void)state;
    w.a->growth.as_native = 1;
    give(block[0]);
    give(block[3]);
    take(6 * MIB);
    assert_int_equal(w.a->arena->divided, 2);
    assert_int_equal(COUNTER(num_ooms), 0);
    assert_int_equal(w.device.used, CAPACITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(corners_serve, setup),
        cmocka_unit_test_setup(only_what_else_would_fail, setup),
        cmocka_unit_test_setup(halves_are_as_any, setup),
        cmocka_unit_test_setup(what_the_driver_refuses_costs_nothing, setup),
        cmocka_unit_test_setup(a_context_that_ends_leaves_nothing, setup),
        cmocka_unit_test_setup(others_free_the_rest_meanwhile, setup),
        cmocka_unit_test_setup(both_halves_are_pinned, setup),
        cmocka_unit_test_setup(halves_are_lent, setup),
        cmocka_unit_test_setup(work_keeps_its_mappings, setup),
        cmocka_unit_test_setup(what_was_mapped_there_is_one, setup),
        cmocka_unit_test_setup(at_last_they_serve_too, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
