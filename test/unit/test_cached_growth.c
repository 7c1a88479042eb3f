/* What is cached does not make memory grow: what is merged out of caches first, and what yields. */
#include "cache_world.h"

#include "allocator/thread_cache/limits.h"
#include "allocator/base/policy.h"

static void a_run_is_merged_before_memory_is_taken_from_the_driver(void **state)
{
    (void)state;
    uint64_t block[512];
    for (int i = 0; i < 512; i++)
        block[i] = get(4096);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 1);
    for (int i = 0; i < 512; i++) {
        as(i % 2);
        put(block[i]);
    }
    int64_t before = cache_count(caches[0]) + cache_count(caches[1]);
    assert_true(before > 0 &&
                w.a->shared.transfer_weight + caches[0]->spared + caches[1]->spared > 0);
    as(2);
    get(MIB);
    assert_true(cache_count(caches[0]) + cache_count(caches[1]) > before / 4); /* the others stay */
    for (int i = 0; i < 256; i++)
        get(4096);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 1);
}

/* 20 MiB lie in caches of so many threads. */
static void fill_caches(int threads)
{
    enum { MOST = 320 };
    uint64_t block[MOST];
    as(0);
    for (int i = 0; i < MOST; i++) /* so much was held once that all of it may lie in caches */
        block[i] = get(MIB);
    for (int i = 0; i < MOST; i++)
        put(block[i]);
    w.device.instant = 1;
    domain_empty_cache(w.domain, 1);
    w.a->caches.looked_at = 0;
    for (int i = 0; i < threads; i++) {
        as(i);
        cached(64 * KIB);
    }
    for (int i = 0; i < MOST; i++)
        block[i] = get(64 * KIB);
    for (int i = 0; i < MOST; i++) {
        as(i % threads);
        put(block[i]);
    }
    assert_true(cache_count(caches[0]) > 0);
}

/* Then segments taken for each of so many MiB after that. */
enum { LARGE = 7, MORE = 14 };
static void grows_by(int threads, unsigned contended, int count, const unsigned *segments)
{
    fill_caches(threads);
    uint64_t before = w.device.calls[FAKE_ALLOC];
    for (int i = 0; i < count; i++) {
        w.a->caches.contended = contended;
        get(MIB);
        assert_int_equal(w.device.calls[FAKE_ALLOC] - before, segments[i]);
    }
}

/* Where threads wait for each other all is looked through when an eighth more is reserved; else at
 * each miss. */
static void looks_are_few_where_threads_wait(void **state)
{
    (void)state;
    grows_by(ROWS, policy.contended, LARGE, (const unsigned[LARGE]){1, 1, 1, 2, 2, 3, 3});
}

static void threads_in_turns_look_at_each_miss(void **state)
{
    (void)state;
    grows_by(ROWS, 0, MORE, (const unsigned[MORE]){0});
}

static void one_thread_looks_at_each_miss(void **state)
{
    (void)state;
    grows_by(1, policy.contended, MORE, (const unsigned[MORE]){0});
}

enum { GETS = 140, LOOKS = 32, MORE_PART = 512 };

static void reserve(uint64_t bytes)
{
    w.device.instant = 1;
    take(bytes);
    w.a->caches.more = 8 * MIB;
    w.a->caches.settled = w.a->caches.looks = 0; /* else the clock might have a say */
}

/* Threads with 20 MiB in their caches miss so many times: what each look does, and when a segment is taken instead.
 * Returns how many were. */
static unsigned taken_for_looks(int may)
{
    uint64_t begin = w.device.calls[FAKE_ALLOC], segments = begin, since = 0;
    for (int i = 0; i < GETS; i++) {
        uint64_t cached = CURRENT_IN(inactive_split_bytes, SMALL_POOL), before = barriers;
        uint64_t most = CURRENT(reserved_bytes) / MORE_PART;
        int is_cheaper = may && since >= LOOKS && cached + 2 * MIB <= most;
        w.a->caches.contended = 0;
        get(128 * KIB);
        uint64_t looks = barriers - before, taken = w.device.calls[FAKE_ALLOC] - segments;
        assert_true(!looks || !is_cheaper);
        assert_true(!taken || is_cheaper);
        since = taken ? 0 : since + looks;
        assert_true(!looks || w.a->caches.more <= 8 * MIB >> since);
        segments += taken;
    }
    return (unsigned)(segments - begin);
}

static void looks_that_go_on_cost_a_little_memory(void **state)
{
    (void)state;
    static const unsigned most[] = {2, 10, 100}, taken[] = {0, 1, 2}; /* MiB that may be cached */
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        cache_world_remake("");
        fill_caches(2);
        reserve(most[i] * MORE_PART * MIB);
        assert_int_equal(taken_for_looks(1), taken[i]);
    }
}

static void but_none_where_little_is_left(void **state)
{
    (void)state;
    for (int once = 0; once < 2; once++) {
        cache_world_remake("");
        fill_caches(2);
        reserve(100 * GIB);
        w.a->capacity = once ? UINT64_MAX : 106 * GIB;
        stats_count(&w.stats, COUNTER_num_alloc_retries, (uint64_t)once);
        assert_int_equal(taken_for_looks(0), 0);
        w.a->capacity = 107 * GIB;
        stats_set(&w.stats, COUNTER_num_alloc_retries, 0);
        get(128 * KIB);
        assert_int_equal(w.a->caches.looks, 0); /* but a segment where there is a sixteenth */
    }
}

static void ones_own_looks_cost_none(void **state)
{
    (void)state;
    cache_world_remake("");
    fill_caches(1);
    reserve(100 * GIB);
    assert_int_equal(taken_for_looks(0), 0);
    assert_int_equal(w.a->caches.more, 8 * MIB);
}

static void nor_do_looks_that_find_nothing_or_are_few(void **state)
{
    (void)state;
    reserve(GIB);
    for (int i = 0; i < 64; i++) {
        as(i % 2);
        get(MIB - 512);
    }
    assert_int_equal(w.a->caches.more, 8 * MIB);
    assert_int_equal(w.a->caches.looks, 0);
    w.a->caches.looks = LOOKS;
    thread_cache_pace(w.a);
    assert_int_equal(w.a->caches.looks, 0);
}

#define PART (MIB / 4) /* the largest that threads cache there */

/* So many blocks are cached in mapped memory. */
static void cache_in_chunks(int count)
{
    enum { MOST = 1280 };
    uint64_t block[MOST];
    cache_world_remake("expandable_segments:True");
    as(0);
    for (int i = 0; i < MOST; i++)
        block[i] = get(PART);
    for (int i = count; i < MOST; i++)
        put(block[i]);
    for (int i = 0; i < count; i++)
        put(block[i]);
    assert_true(cache_count(caches[0]) > 0);
}

/* What is cached keeps no chunk from large blocks. */
static void caches_yield_to_large_blocks(void **state)
{
    (void)state;
    cache_in_chunks(32);
    uint64_t reserved = CURRENT(reserved_bytes);
    take(reserved);
    assert_int_equal(CURRENT(reserved_bytes), reserved);
    assert_int_equal(cache_count(caches[0]), 0);
}

/* Of what they hold a quarter must have been grown by since they last did. */
static void they_yield_when_much_has_grown(void **state)
{
    (void)state;
    enum { COUNT = 32 };
    uint64_t block[COUNT];
    cache_in_chunks(COUNT);
    take(CURRENT(reserved_bytes));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT - 8 * round; i++)
            block[i] = get(PART);
        for (int i = 0; i < COUNT - 8 * round; i++)
            put(block[i]);
        uint64_t reserved = CURRENT(reserved_bytes);
        int64_t count = cache_count(caches[0]);
        assert_true(count > 0);
        if (round) {
            take(2 * MIB); /* nothing has grown since */
            assert_int_equal(CURRENT(reserved_bytes), reserved += 2 * MIB);
            assert_int_equal(cache_count(caches[0]), count);
        }
        take(2 * MIB);
        assert_int_equal(CURRENT(reserved_bytes), reserved);
        assert_int_equal(cache_count(caches[0]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CACHE(a_run_is_merged_before_memory_is_taken_from_the_driver),
        CACHE(looks_are_few_where_threads_wait),
        CACHE(threads_in_turns_look_at_each_miss),
        CACHE(one_thread_looks_at_each_miss),
        CACHE(looks_that_go_on_cost_a_little_memory),
        CACHE(but_none_where_little_is_left),
        CACHE(ones_own_looks_cost_none),
        CACHE(nor_do_looks_that_find_nothing_or_are_few),
        CACHE(caches_yield_to_large_blocks),
        CACHE(they_yield_when_much_has_grown),
    };
    return cmocka_run_group_tests_name("cached growth", tests, NULL, NULL);
}
