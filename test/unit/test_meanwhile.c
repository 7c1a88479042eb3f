/* What other threads do to mapped memory while one is in a driver's call, without the lock. */
#include "lane_world.h"

#include "allocator/pool/arena_blocks.h"
#include "allocator/reuse/fence.h"

#define MAPPED "expandable_segments:True,large_segment_size_mb:2"

static int met;
static uint64_t met_calls;

static int setup(void **state)
{
    lane_world_setup(state);
    const struct lane_ops *ops = w.domain->lane.ops;
    world_remake(MAPPED, 256 * MIB);
    lane_start(w.domain, ops);
    met = 0;
    return 0;
}

static void another_marks(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_QUERY || !after || met)
        return;
    assert_ptr_equal(device, &w.device);
    met = 1;
    take(12 * MIB);
}

/* Slots that were left after a mark are not done with because that mark has passed. */
static void a_mark_speaks_for_its_own_epoch(void **state)
{
    (void)state;
    w.device.instant = 0;
    take(8 * MIB);
    pass_all();
    w.device.meanwhile = another_marks;
    take(8 * MIB);
    w.device.meanwhile = NULL;
    assert_true(met);
    const struct arena *arena = w.a->arena;
    assert_non_null(arena->left.mark);
    assert_true(arena->left.safe < arena->left.marked);
}

static void a_walk(struct fake_device *device, enum fake_call call)
{
    (void)call;
    assert_ptr_equal(device, &w.device);
    met = 1;
    met_calls = device->calls[FAKE_ALLOW];
    domain_allow(w.domain, w.a->ordinal);
    met_calls = device->calls[FAKE_ALLOW] - met_calls;
}

static void walks_at_a_claims_end(struct fake_device *device, enum fake_call call, int after)
{
    if (call == FAKE_ALLOW && after && !met)
        a_walk(device, call);
}

/* A walk leaves out what a claim is at: the claim sees that one has begun. */
static void a_peer_that_comes_during_a_claim_gets_access(void **state)
{
    (void)state;
    w.device.meanwhile = walks_at_a_claims_end;
    take(8 * MIB);
    w.device.meanwhile = NULL;
    assert_true(met);
    assert_int_equal(met_calls, 0);
    assert_int_equal(w.device.calls[FAKE_ALLOW], 2);
}

static int in_time;

static void walks_while_a_release_waits(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_WAIT || after || met)
        return;
    a_walk(device, call);
    if (in_time)
        pass_all();
}

/* What was to be given back, in vain, is handed out again without a driver's call. */
static void a_peer_that_comes_during_a_release_gets_access(void **state)
{
    (void)state;
    for (in_time = 0; in_time < 2; in_time++) {
        setup(NULL);
        w.device.instant = 0;
        give(take(8 * MIB));
        w.device.meanwhile = walks_while_a_release_waits;
        domain_empty_cache(w.domain, 0);
        w.device.meanwhile = NULL;
        assert_true(met);
        assert_int_equal(met_calls, 1);
        assert_int_equal(w.device.mapped, in_time ? 0 : 4);
        w.device.instant = 1;
        pass_all();
        domain_empty_cache(w.domain, 1);
        assert_int_equal(w.device.mapped, 0);
        assert_int_equal(w.device.used, 0);
    }
}

static struct fake_device second;
static struct allocator *other;

static void the_other_context_grows(struct fake_device *device, enum fake_call call, int after)
{
    uint64_t block;
    if ((call != FAKE_CREATE && call != FAKE_ALLOC) || after || met)
        return;
    assert_ptr_equal(device, &w.device);
    met = 1;
    assert_int_equal(allocator_malloc(other, 40 * MIB, &block), w.a->ops->out_of_memory);
}

/* The limit is the device's: what another context is about to have counts. */
static void two_contexts_grow_at_once_below_the_limit(void **state)
{
    static const char *const ways[] = {"memory_limit_mb:64", MAPPED ",memory_limit_mb:64"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        met = 0;
        world_remake(ways[i], 256 * MIB);
        fake_init(&second, 256 * MIB);
        other = world_add(&second, NULL);
        w.device.meanwhile = the_other_context_grows;
        take(40 * MIB);
        w.device.meanwhile = NULL;
        assert_true(met);
        assert_true(CURRENT(reserved_bytes) <= 64 * MIB);
    }
}

/* The mark of an epoch that is not over goes with its context. */
static void a_context_that_ends_keeps_no_mark(void **state)
{
    enum { CONTEXTS = 8 };
    static struct fake_device device[CONTEXTS];
    size_t fences = 0;
    (void)state;
    for (int i = 0; i < CONTEXTS; i++) {
        uint64_t first, larger;
        fake_init(&device[i], 256 * MIB);
        device[i].instant = 0;
        struct allocator *a = world_add(&device[i], NULL);
        assert_int_equal(allocator_malloc(a, 64 * MIB, &first), 0);
        assert_int_equal(allocator_malloc(a, 4 * MIB, &larger), 0);
        domain_free(w.domain, first, FREED_NATIVE);
        assert_int_equal(allocator_malloc(a, 100 * MIB, &larger), 0);
        assert_non_null(a->arena->left.mark);
        allocator_forget(a);
        allocator_bury(a);
        fences = fences ? fences : w.domain->fences.made;
        assert_int_equal(w.domain->fences.made, fences);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_mark_speaks_for_its_own_epoch, setup),
        cmocka_unit_test_setup(a_peer_that_comes_during_a_claim_gets_access, setup),
        cmocka_unit_test_setup(a_peer_that_comes_during_a_release_gets_access, setup),
        cmocka_unit_test_setup(two_contexts_grow_at_once_below_the_limit, setup),
        cmocka_unit_test_setup(a_context_that_ends_keeps_no_mark, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
