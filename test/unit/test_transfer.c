/* What thread caches exchange in batches, and the bounds of it all. */
#include "allocator/thread_cache/limits.h"
#include "cache_world.h"
#include "random.h"

#include <string.h>

#include "allocator/base/policy.h"

/* Told or not, of the first three. */
static int64_t spare_now(void)
{
    return w.a->shared.transfer_weight + caches[0]->spared + caches[1]->spared + caches[2]->spared;
}

/* More batches than a list has places for; and whether any was taken. */
static void a_list_holds_any_number_of_batches(void **state)
{
    (void)state;
    enum { MOST = 3 * SPARE_PLACES };
    static struct block batch[MOST];
    unsigned step = step_of(4096);
    for (int i = 0; i < MOST; i++) {
        batch[i].grains = 4096 / BLOCK_GRAIN;
        assert_int_equal(transfer_put(w.a, NULL, &batch[i], 1), 0);
    }
    assert_false(transfer_is_asked(w.a, step));
    assert_true(w.a->shared.transfer_weight == (int64_t)(MOST * policy.transfer_least));
    for (int i = MOST; i--;)
        assert_ptr_equal(transfer_take(w.a, NULL, 4096), &batch[i]);
    assert_null(transfer_take(w.a, NULL, 4096));
    assert_true(step_is_used(w.a->shared.transfer_used, step) && transfer_is_asked(w.a, step));
    assert_false(step_is_used(w.a->shared.transfer_used, step));
    assert_false(transfer_is_asked(w.a, step));
    assert_true(w.a->shared.transfer_weight == 0);
}

static void batches_pass_between_threads_without_the_lock(void **state)
{
    (void)state;
    enum { MOST = 256 };
    uint64_t block[MOST];
    for (int i = 0; i < ROWS; i++) {
        as(i);
        cached(8192);
    }
    as(0);
    for (int i = 0; i < MOST; i++)
        block[i] = get(4096);
    for (int i = 0; i < MOST; i++)
        put(block[i]); /* so that no peak is in the way */
    for (int i = 0; i < MOST / 2; i++)
        block[i] = get(4096);
    give(take(4 * MIB)); /* what was counted alone is counted for all */
    lock_take(&w.domain->lock);
    for (int i = 0; i < MOST / 2; i++) {
        as(1);
        assert_true(domain_free_alone(block[i]));
        if (i >= 3 * BATCH_BLOCKS) {
            as(2);
            assert_true(block[i] = allocator_hit_alone(w.a, 4096));
            assert_true(domain_free_alone(block[i]));
        }
    }
    lock_give(&w.domain->lock);
    look();
    assert_true(NOW(allocation) == 0);
    assert_true(allocator_is_valid(w.a));
}

/* What a cache may hold: a part of the most that the program held in small blocks. */
static int64_t cache_may_hold(void)
{
    uint64_t part = w.stats.stat[STAT_allocated_bytes].peak[SMALL_POOL] / 16;
    return (int64_t)(part < 2 * MIB ? 2 * MIB : part < 10 * MIB ? part : 10 * MIB);
}

/* No cache holds more than it may, nor do the spare blocks, whatever goes through them; and what is
 * not asked for any more makes room for what is. */
static void caches_and_spare_blocks_are_bounded(void **state)
{
    (void)state;
    enum { MOST = 500 };
    static uint64_t block[MOST];
    for (uint64_t bytes = 512; bytes <= MIB; bytes *= 4) {
        as(0);
        for (int i = 0; i < MOST; i++)
            block[i] = get(bytes + 512 * (uint64_t)(i % 3));
        as(1);
        for (int i = 0; i < MOST; i++, fake_advance(20000)) { /* slowly: no more than their part */
            put(block[i]);
            assert_true(cache_bytes(caches[1]) <= cache_may_hold());
            assert_true(cache_count(caches[1]) <= policy.cache_blocks);
            assert_true(spare_now() <= 2 * (cache_may_hold() * 6 / 10 + policy.transfer_untold));
        }
        uint64_t again = get(bytes);
        assert_true(domain_free_alone(again));
        look();
        assert_true(stats_get(&now, COUNTER_reusable_bytes) == NOW(reserved_bytes));
    }
    assert_true(cache_may_hold() == 10 * (int64_t)MIB && spare_now() > 6 * (int64_t)MIB);
    for (int i = 0; i < 2; i++) {
        as(i);
        domain_thread_ends(w.domain);
    }
    assert_true(w.a->shared.transfer_weight == 0 && CURRENT(inactive_split) == 0);
}

/* Where threads wait for each other, one that finds nothing takes some for its next requests too. */
static void what_the_pool_has_comes_in_batches(void **state)
{
    (void)state;
    enum { MOST = 64, ALONE = 0, IN_TURN, IN_THE_WAY, WAYS };
    uint64_t block[MOST];
    for (int way = ALONE; way < WAYS; way++) {
        as(way != ALONE);
        cached(8192);
        as(0);
        uint64_t holds = get(4096); /* its segment is not given back */
        for (int i = 0; i < MOST; i++)
            block[i] = get(4096);
        for (int i = 0; i < MOST; i++)
            put(block[i]);
        domain_empty_cache(w.domain, 0);
        assert_true(cache_count(caches[0]) == 0 && allocator_hit_alone(w.a, 4096) == 0);
        int count = 0;
        w.domain->lock.waited = way == IN_THE_WAY;
        for (block[count++] = get(4096); (block[count] = allocator_hit_alone(w.a, 4096));)
            count++;
        assert_true(way == IN_THE_WAY ? count > 4 && count < BATCH_BLOCKS : count == 1);
        while (count)
            put(block[--count]);
        put(holds);
        look();
        assert_true(NOW(allocation) == 0);
        assert_true(allocator_is_valid(w.a));
    }
}

static int64_t on_shelf(const struct shelf *shelf)
{
    const struct block *chain[] = {shelf->first, shelf->full};
    int64_t count = 0;
    for (int i = 0; i < 2; i++)
        for (; chain[i]; count++)
            chain[i] = chain[i]->link;
    return count;
}

/* A free that finds neither room nor anything spare that nobody wants makes room for some more. */
static void what_the_pool_gets_goes_in_batches(void **state)
{
    (void)state;
    enum { MOST = 4 * BATCH_BLOCKS };
    uint64_t block[MOST];
    as(0);
    for (int round = 0; round < 2; round++) { /* the second time no peak is in the way */
        for (int i = 0; i < MOST; i++)
            block[i] = get(4096);
        for (int i = 0; i < MOST && !round; i++)
            put(block[i]);
    }
    w.a->shared.transfer_weight = 100 * MIB; /* as if there were more than may be */
    for (int i = 0; i <= 2 * BATCH_BLOCKS; i++)
        put(block[i]);
    for (int i = 1; i < 5; i++)
        assert_true(domain_free_alone(block[2 * BATCH_BLOCKS + i]));
    int64_t count = cache_count(caches[0]);
    assert_true(count > BATCH_BLOCKS && count == on_shelf(shelf_of(caches[0], 4096)));
    look();
    assert_true(NOW(allocation) == MOST - 2 * BATCH_BLOCKS - 5);
    assert_true(allocator_is_valid(w.a));
}

/* One thread only takes, another only frees: what each counts alone is limited all the same.
 * `waiting`: with the lock taken whenever a third looks at it. */
static void passes_through(uint32_t waiting)
{
    enum { ROUND = 64, BYTES = 128 * 1024 };
    uint64_t block[8 * ROUND], most = 0;
    as(2);
    for (int i = 0; i < 8 * ROUND; i++)
        block[i] = get(BYTES);
    for (int i = 0; i < 8 * ROUND; i++)
        put(block[i]);
    uint64_t peak = PEAK(allocated_bytes); /* is in nobody's way */
    for (int round = 0; round < 100; round++) {
        as(0);
        for (int i = 0; i < ROUND; i++) {
            w.domain->lock.waited = waiting;
            block[i] = get(BYTES);
        }
        as(1);
        for (int i = 0; i < ROUND; i++) {
            w.domain->lock.waited = waiting;
            put(block[i]);
        }
        for (int i = 0; i < 2; i++) {
            uint64_t in = rows[i].freed_bytes, out = rows[i].allocated_bytes;
            uint64_t alone = in > out ? in - out : out - in;
            most = alone > most ? alone : most;
        }
    }
    assert_true(most <= policy.alone_least && (!waiting || most >= policy.alone_least / 2));
    look();
    assert_true(NOW(allocation) == 0 && NOW(allocated_bytes) == 0);
    assert_true(PEAK(allocated_bytes) >= peak);
    assert_true(PEAK(allocated_bytes) <= peak + COUNTER(peak_uncertainty_bytes));
    assert_true(stats_get(&now, COUNTER_num_thread_hits) > 50 * ROUND);
}

/* Of what the program held in small blocks each may count a part alone then, and ever since. */
static void threads_in_each_others_way_count_more_alone(void **state)
{
    (void)state;
    enum { MOST = 400 };
    uint64_t block[MOST];
    for (int i = 0; i < 2; i++) {
        as(i);
        get(4096);
    }
    for (int i = 0; i < MOST; i++)
        block[i] = take(MIB);
    cached(8192);
    assert_true(COUNTER(peak_uncertainty_bytes) == 2 * policy.alone_least);
    w.domain->lock.waited = 1;
    thread_cache_forget_limits(caches[1]);
    take(512);
    assert_true(COUNTER(peak_uncertainty_bytes) == 2 * (MOST / policy.alone_part) * MIB);
    for (int i = 0; i < MOST; i++)
        give(block[i]);
    for (unsigned i = 0; i < policy.contended; i++)
        take(512);
    assert_false(caches_are_contended(w.a));
    assert_true(w.a->shared.alone_most == (int64_t)(MOST / policy.alone_part * MIB));
    assert_true(COUNTER(peak_uncertainty_bytes) == 2 * (MOST / policy.alone_part) * MIB);
}

static void what_passes_through_is_counted_in_time(void **state)
{
    (void)state;
    passes_through(0);
    passes_through(1);
}

/* Whoever had to wait for the lock does not add up while others wait for it in turn. */
static void nobody_adds_up_while_others_wait(void **state)
{
    (void)state;
    as(0);
    for (int i = 0; i < 3; i++)
        put(get(8192)); /* the limits are known */
    assert_true(rows[0].allocated_bytes > 0);
    for (int others = 0; others < 2; others++) {
        as(1);
        if (others)
            cached(8192); /* and shares the allocator */
        as(0);
        put(get(8192));
        uint64_t alone = rows[0].allocated_bytes;
        w.domain->lock.waited = 1;
        uint64_t large = take(4 * MIB);
        assert_true(rows[0].allocated_bytes == (others ? alone : 0));
        assert_true(w.domain->lock.waited == 0);
        give(large);
        assert_true(take(4 * MIB) == large && rows[0].allocated_bytes == 0);
        give(large);
        for (int i = 0; i < 3; i++)
            put(get(8192));
    }
}

/* The same work without caches and then with one: the most that is reserved. */
static void caches_add_little_to_what_is_reserved(void **state)
{
    (void)state;
    enum { MOST = 1000 };
    static uint64_t address[MOST];
    uint64_t without = 0;
    for (int run = 0; run < 2; run++) {
        uint64_t random = 3;
        thread_cache_own = run ? caches[0] : NULL;
        for (int step = 0; step < 10000; step++) {
            uint64_t *one = &address[random_below(&random, step < 5000 ? MOST : MOST / 4)];
            uint64_t bytes = (uint64_t)512 << random_below(&random, 12);
            if (*one)
                put(*one);
            *one = *one ? 0 : get(bytes - random_below(&random, 512));
        }
        for (int i = 0; i < MOST; i++) {
            if (address[i])
                put(address[i]);
            address[i] = 0;
        }
        w.device.instant = 1;
        domain_empty_cache(w.domain, 1);
        without = run ? without : PEAK(reserved_bytes);
    }
    look();
    assert_true(stats_get(&now, COUNTER_num_thread_hits) > 1000);
    assert_true(PEAK(reserved_bytes) <= without + 16 * MIB / 10 * policy.cache_most / MIB);
}

/* Lines of 64 bytes that a pair of this thread uses of its own: row, cache and block. */
static int lines_of(int i, uintptr_t *line)
{
    const void *begin[] = {&rows[i], caches[i], caches[i]->shelf[step_of(4096)].first};
    size_t bytes[] = {sizeof rows[i], sizeof *caches[i], sizeof(struct block)};
    int count = 0;
    for (int part = 0; part < 3; part++)
        for (uintptr_t at = (uintptr_t)begin[part] / 64 * 64;
             at < (uintptr_t)begin[part] + bytes[part]; at += 64)
            line[count++] = at;
    return count;
}

static void a_pair_touches_no_line_of_another_thread(void **state)
{
    (void)state;
    static uintptr_t line[ROWS][2000];
    static char domain[sizeof(struct domain)], allocator[sizeof(struct allocator)];
    int count[ROWS];
    for (int i = 0; i < ROWS; i++) {
        as(i);
        cached(4096);
        count[i] = lines_of(i, line[i]);
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < i; j++)
            for (int k = 0; k < count[i] * count[j]; k++)
                assert_true(line[i][k % count[i]] != line[j][k / count[i]]);
    /* And writes nothing that they share. */
    struct device_stats stats = w.stats;
    memcpy(domain, w.domain, sizeof domain);
    memcpy(allocator, w.a, sizeof allocator);
    for (int i = 0; i < 1000 * ROWS; i++) {
        as(i % ROWS);
        uint64_t block = allocator_hit_alone(w.a, 4096);
        assert_true(block && domain_free_alone(block));
    }
    assert_memory_equal(&stats, &w.stats, sizeof stats);
    assert_memory_equal(domain, w.domain, sizeof domain);
    assert_memory_equal(allocator, w.a, sizeof allocator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CACHE(a_list_holds_any_number_of_batches),
        CACHE(batches_pass_between_threads_without_the_lock),
        CACHE(caches_and_spare_blocks_are_bounded),
        CACHE(a_pair_touches_no_line_of_another_thread),
        CACHE(what_the_pool_has_comes_in_batches),
        CACHE(what_the_pool_gets_goes_in_batches),
        CACHE(threads_in_each_others_way_count_more_alone),
        CACHE(what_passes_through_is_counted_in_time),
        CACHE(nobody_adds_up_while_others_wait),
        CACHE(caches_add_little_to_what_is_reserved),
    };
    return cmocka_run_group_tests_name("spare blocks", tests, NULL, NULL);
}
