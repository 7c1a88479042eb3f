/* Thread caches: what a thread frees and takes alone, who may not, when all goes back, and that the
 * numbers are right. Peaks: test_peaks.c. */
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/share.h"
#include "allocator/base/policy.h"
#include "allocator/thread_cache/locked.h"
#include "cache_world.h"
#include "random.h"

static void a_pair_takes_no_lock(void **state)
{
    (void)state;
    uint64_t block = cached(4096);
    domain_lock(w.domain);
    for (int i = 0; i < 1000; i++) {
        assert_true(allocator_hit_alone(w.a, 4000 + i % 97) == block);
        assert_true(domain_free_alone(block));
    }
    domain_unlock(w.domain);
    look();
    assert_true(NOW(allocation) == 0 && NOW(requested_bytes) == 0 && NOW(active_bytes) == 0);
    assert_true(now.stat[STAT_allocation].allocated[SMALL_POOL] == 1002);
    assert_true(stats_get(&now, COUNTER_num_thread_hits) == 1001);
    assert_true(stats_get(&now, COUNTER_reusable_bytes) == 2 * MIB);
    assert_true(NOW(inactive_split_bytes) == 2 * MIB);
}

/* But not with what lies among large blocks: there it would keep a hole from them. */
static void what_lies_among_large_blocks_does_not_stay(void **state)
{
    (void)state;
    cache_world_remake("expandable_segments:True");
    uint64_t large = take(3 * MIB), block = get(512 * KIB), apart = cached(256 * KIB);
    assert_true(block == large + 3 * MIB && apart > block + MIB);
    assert_false(domain_free_alone(block));
    give(block);
    assert_int_equal(take(MIB), block);
    look();
    assert_true(NOW(allocation) == 2 && now.stat[STAT_allocation].allocated[SMALL_POOL] == 4);
}

static void wrong_frees_are_answered_as_without_caches(void **state)
{
    (void)state;
    uint64_t block = cached(4096), held = get(4096);
    assert_true(held == block);
    assert_false(domain_free_alone(block + 512));
    assert_int_equal(try_give(block + 512), ALLOCATOR_INVALID);
    put(block);
    assert_false(domain_free_alone(block));
    assert_int_equal(try_give(block), ALLOCATOR_INVALID);
    assert_int_equal(COUNTER(num_double_frees), 2);
    as(1);
    assert_false(domain_free_alone(block));
    assert_int_equal(try_give(block), ALLOCATOR_INVALID);
}

static void only_small_blocks_on_a_lane_stay(void **state)
{
    (void)state;
    uint64_t large = take(CACHE_MOST + 1), small = take(4096);
    assert_false(domain_free_alone(large));
    give(large);
    assert_true(allocator_hit_alone(w.a, CACHE_MOST + 1) == 0);
    submit(L);
    submit(K);
    assert_true(mode() == LANE_MANY);
    assert_false(domain_free_alone(small));
    give(small);
    assert_true(get(4096) != small); /* it waits for its fence */
}

static void a_free_into_a_cache_makes_the_lane_dirty(void **state)
{
    (void)state;
    cached(4096);
    submit(L);
    uint64_t block = get(4096);
    assert_true(domain_free_alone(block));
    assert_true(atomic_load(&w.domain->lane.state.word) & LANE_DIRTY);
    submit(K);
    assert_true(marks() == 1 && joins == 1);
}

static void a_free_that_the_host_waits_in_takes_the_lock(void **state)
{
    (void)state;
    cached(4096);
    uint64_t block = get(4096);
    submit(L);
    allocator_note_host_work(w.a);
    assert_false(domain_free_alone(block));
    w.device.instant = 1;
    give(block);
    assert_true(domain_free_alone(get(4096)));
}

static void marked_blocks_do_not_stay(void **state)
{
    (void)state;
    struct block_place place;
    cached(4096);
    uint64_t exported = get(4096);
    assert_int_equal(domain_mark(w.domain, exported, BLOCK_EXPORTED, &place), 0);
    assert_false(domain_free_alone(exported));
    uint64_t other = cached(512), pinned = get(1024);
    assert_int_equal(domain_mark(w.domain, pinned, BLOCK_PINNED, &place), 0);
    assert_false(domain_free_alone(pinned));
    assert_true(get(512) != other); /* from a pinned segment nothing is taken */
    assert_int_equal(domain_mark(w.domain, other, BLOCK_EXPORTED, &place), ALLOCATOR_INVALID);
}

static void blocks_of_another_context_do_not_stay(void **state)
{
    (void)state;
    static struct fake_device device;
    static struct device_stats stats;
    fake_init(&device, UINT64_MAX);
    memset(&stats, 0, sizeof stats);
    struct allocator *other = world_add(&device, &stats);
    uint64_t theirs = 0;
    as(1);
    assert_int_equal(allocator_malloc(other, 4096, &theirs), 0);
    as(0);
    uint64_t ours = cached(4096);
    cached(8192);
    get(8192); /* no peak is in the way */
    assert_false(domain_free_alone(theirs));
    assert_true(allocator_hit_alone(other, 4096) == 0);
    assert_int_equal(domain_free(w.domain, theirs, FREED_NATIVE), 0);
    assert_true(allocator_hit_alone(other, 4096) == theirs); /* it serves that one now */
    assert_true(allocator_hit_alone(w.a, 4096) == 0);
    assert_int_equal(allocator_forget(other), 1);
    assert_true(allocator_hit_alone(other, 4096) == 0 && get(4096) == ours);
}

static void a_thread_leaves_nothing_behind(void **state)
{
    (void)state;
    cached(4096);
    as(1);
    domain_thread_ends(w.domain);
    as(0);
    for (int i = 0; i < 1000; i++) {
        domain_thread_ends(w.domain);
        assert_null(thread_cache_own);
        assert_true(CURRENT(inactive_split) == 0 && COUNTER(reusable_bytes) == 2 * MIB);
        assert_int_equal(domain_thread_begins(w.domain, &rows[0]), 0);
        assert_ptr_equal(thread_cache_own, caches[0]);
        cached(512 + i);
    }
    domain_thread_ends(w.domain);
    w.device.instant = 1;
    assert_int_equal(domain_empty_cache(w.domain, 1), 2 * MIB);
}

static uint64_t shown[4];
static void show(void *context, const struct snapshot_block *block)
{
    (void)context;
    shown[block->state] += block->size_bytes;
}

static void a_snapshot_shows_them_reusable(void **state)
{
    (void)state;
    cached(4096);
    memset(shown, 0, sizeof shown);
    domain_walk(w.domain, show, NULL);
    assert_true(shown[SNAPSHOT_REUSABLE] == 2 * MIB && shown[SNAPSHOT_ALLOCATED] == 0);
}

static _Atomic int rung;

static void ring(void)
{
    rung++;
}

static int rest_again(void)
{
    domain_rest(w.domain, ring);
    return domain_rest(w.domain, ring);
}

/* As the service thread, which has no cache. */
static void rest(int wanted)
{
    thread_cache_own = NULL;
    rung = 0;
    assert_int_equal(rest_again(), wanted);
    as(0);
}

static void rouse(void)
{
    thread_cache_own = NULL;
    domain_rouse(w.domain);
    as(0);
}

/* The next request or free takes the lock, and that rings. */
static void a_rest_ends_with_the_next_use(void **state)
{
    (void)state;
    uint64_t block = cached(4096), held = get(512);
    rest(1);
    assert_true(allocator_hit_alone(w.a, 4096) == 0);
    assert_int_equal(rung, 0);
    assert_int_equal(take(4096), block);
    give(held);
    assert_int_equal(rung, 1);
    assert_false(domain_free_alone(block));
    rouse();
    put(block);
    assert_int_equal(cached(4096), block);
    assert_int_equal(get(4096), block);
    rest(1);
    assert_false(domain_free_alone(block));
    give(block);
    assert_int_equal(rung, 1);
    rouse();
    rest(1);
    rouse();
    put(take(4 * MIB));
    assert_int_equal(rung, 0);
    thread_cache_own = NULL;
    assert_false(domain_rest(w.domain, ring));
    as(0);
}

static int real_barrier(void)
{
    return (int)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}
static struct lane_ops real_ops;

static _Atomic(uintptr_t) passed[64];
static _Atomic int going;

static void *work(void *row)
{
    uint64_t random = (uint64_t)(uintptr_t)row | 1, held[16] = {0}, address;
    assert_int_equal(domain_thread_begins(w.domain, row), 0);
    for (int step = 0; step < 20000; step++) {
        uint64_t i = random_below(&random, 16), bytes = (uint64_t)512 << random_below(&random, 8);
        address = held[i];
        held[i] = 0;
        if (address) /* another may free it */
            address = atomic_exchange(&passed[random_below(&random, 64)], address);
        else if (!(held[i] = allocator_hit_alone(w.a, bytes)))
            assert_int_equal(allocator_malloc(w.a, bytes, &held[i]), 0);
        if (address && !domain_free_alone(address))
            assert_int_equal(domain_free(w.domain, address, FREED_NATIVE), 0);
    }
    for (int i = 0; i < 16; i++)
        if (held[i])
            assert_int_equal(domain_free(w.domain, held[i], FREED_NATIVE), 0);
    domain_thread_ends(w.domain);
    going--;
    return NULL;
}

/* What one thread frees may be counted before what another took. */
static void no_number_falls_below_zero(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        as(i);
        cached(64 * KIB);
        cached(8192);
    }
    uint64_t peak = PEAK(allocated_bytes);
    as(0);
    uint64_t block = allocator_hit_alone(w.a, 64 * KIB);
    assert_true(block);
    as(1);
    put(block);
    assert_true(domain_free_alone(get(8192)));
    give(take(2 * MIB)); /* counts for all what was freed */
    assert_true((int64_t)CURRENT(allocated_bytes) < 0);
    assert_true(PEAK(allocated_bytes) <= peak + 2 * MIB);
    assert_true(w.stats.at_peak_allocated[MOMENT_allocated_bytes] <= PEAK(allocated_bytes));
    look();
    assert_true(NOW(allocated_bytes) == 0 && now.stat[STAT_active].peak[STAT_POOLS] < 100);
}

static void others_may_take_what_is_in_them(void **state)
{
    (void)state;
    pthread_t thread[ROWS];
    for (int i = 0; i < ROWS; i++) {
        as(i);
        domain_thread_ends(w.domain);
    }
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    real_ops = *w.domain->lane.ops;
    real_ops.barrier = real_barrier;
    w.domain->lane.ops = &real_ops;
    going = ROWS;
    rung = 0;
    int rests = 0;
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &rows[i]), 0);
    while (going) {
        domain_empty_cache(w.domain, 0);
        domain_walk(w.domain, show, NULL);
        rests += rest_again();
        usleep(100);
        domain_rouse(w.domain);
    }
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_in_range(rung, 0, rests);
    for (int i = 0; i < 64; i++)
        if (passed[i])
            assert_int_equal(domain_free(w.domain, atomic_exchange(&passed[i], 0), FREED_NATIVE),
                             0);
    look();
    assert_true(NOW(allocation) == 0 && NOW(active_bytes) == 0 && NOW(requested_bytes) == 0);
    assert_true(stats_get(&now, COUNTER_num_thread_hits) > 1000);
    assert_true(allocator_is_valid(w.a));
}

static int64_t may_hold_after(uint64_t pairs, uint64_t ns, uint32_t waiting)
{
    for (uint64_t i = 0; i < pairs; i++) {
        fake_advance(ns);
        w.domain->lock.waited = waiting;
        give(take(4 * MIB)); /* by the lock */
    }
    return w.a->shared.cache_most;
}

static void caches_hold_more_while_they_miss_often(void **state)
{
    (void)state;
    as(0);
    put(get(4096));
    assert_int_equal(may_hold_after(3 * policy.pace, 500000, 0), policy.cache_least);
    assert_int_equal(may_hold_after(20 * policy.pace, 100, 0), policy.cache_most);
    assert_int_equal(may_hold_after(3 * policy.pace, 500000, 0), policy.cache_most);
    assert_int_equal(may_hold_after(3 * policy.pace, 10000000, 0), policy.cache_least);
    assert_int_equal(may_hold_after(20 * policy.pace, 100000, 0), policy.cache_least);
    give(take(256 * MIB)); /* a 64th of that */
    assert_int_equal(may_hold_after(20 * policy.pace, 100000, 0), 4 * MIB);
    as(1);
    put(get(4096));
    give(take(450 * MIB)); /* half of that for each of two */
    assert_int_equal(may_hold_after(20 * policy.pace, 100000, 0), 3 * MIB);
    assert_int_equal(may_hold_after(20 * policy.pace, 100000, 1),
                     policy.cache_least); /* they wait in line */
    assert_int_equal(may_hold_after(20 * policy.pace, 100000, 0), 3 * MIB);
}

/* Where one thread works, no clock decides what its cache holds. */
static void a_thread_alone_has_no_clock(void **state)
{
    static const uint64_t ns[] = {100, 500000, 100000000};
    (void)state;
    for (int i = 0; i < 3; i++) {
        cache_world_remake("");
        for (int other = 1; other < ROWS; other++) {
            as(other);
            domain_thread_ends(w.domain);
        }
        as(0);
        put(get(4096));
        assert_int_equal(may_hold_after(20 * policy.pace, ns[i], 0), policy.cache_most);
    }
}

static void without_the_option_there_are_none(void **state)
{
    (void)state;
    as(0);
    w.domain->options.thread_cache = 0;
    assert_int_equal(domain_thread_begins(w.domain, &rows[0]), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CACHE(a_pair_takes_no_lock),
        CACHE(what_lies_among_large_blocks_does_not_stay),
        CACHE(wrong_frees_are_answered_as_without_caches),
        CACHE(only_small_blocks_on_a_lane_stay),
        CACHE(a_free_into_a_cache_makes_the_lane_dirty),
        CACHE(a_free_that_the_host_waits_in_takes_the_lock),
        CACHE(marked_blocks_do_not_stay),
        CACHE(blocks_of_another_context_do_not_stay),
        CACHE(a_thread_leaves_nothing_behind),
        CACHE(a_snapshot_shows_them_reusable),
        CACHE(a_rest_ends_with_the_next_use),
        CACHE(others_may_take_what_is_in_them),
        CACHE(caches_hold_more_while_they_miss_often),
        CACHE(a_thread_alone_has_no_clock),
        CACHE(no_number_falls_below_zero),
        CACHE(without_the_option_there_are_none),
    };
    return cmocka_run_group_tests_name("thread caches", tests, NULL, NULL);
}
