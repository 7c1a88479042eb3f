/* Peaks are exact while one thread allocates, whatever it counts alone. */
#include "cache_world.h"
#include "random.h"
#include "allocator/base/policy.h"

/* What the statistics must be, counted by hand. */
struct sums {
    uint64_t now[3], most[3]; /* blocks, bytes, requested */
};

static void book(struct sums *sums, int taken, uint64_t bytes)
{
    uint64_t each[3] = {1, options_round(&w.options, bytes), bytes};
    for (int i = 0; i < 3; i++) {
        sums->now[i] += taken ? each[i] : -each[i];
        sums->most[i] = sums->now[i] > sums->most[i] ? sums->now[i] : sums->most[i];
    }
}

static void compare(const struct sums *sums, enum stat_pool pool)
{
    static const enum stat_kind kinds[5] = {STAT_allocation, STAT_allocated_bytes,
                                            STAT_requested_bytes, STAT_active, STAT_active_bytes};
    static const int which[5] = {0, 1, 2, 0, 1};
    for (int i = 0; i < 5; i++) {
        uint64_t current = pool == STAT_POOLS ? stats_current_all(&now, kinds[i])
                                              : stats_current(&now, kinds[i], pool);
        assert_true(current == sums->now[which[i]]);
        assert_true(now.stat[kinds[i]].peak[pool] == sums->most[which[i]]);
    }
}

/* One step in `large` asks for a large block. */
static void random_steps(int steps, uint64_t large, uint64_t random)
{
    enum { MOST = 64 };
    struct sums sums[STAT_POOLS + 1] = {0};
    uint64_t address[MOST] = {0}, bytes[MOST];
    for (int step = 0; step < steps; step++) {
        uint64_t i = random_below(&random, MOST);
        if (address[i]) {
            put(address[i]);
            address[i] = 0;
        } else {
            bytes[i] = 1 + random_below(&random, step % 50 ? 3000 : 900000);
            if (large && random_below(&random, large) == 0)
                bytes[i] = MIB + 1 + random_below(&random, 12 * MIB);
            address[i] = get(bytes[i]);
        }
        book(&sums[STAT_POOLS], address[i] != 0, bytes[i]);
        book(&sums[bytes[i] > MIB ? LARGE_POOL : SMALL_POOL], address[i] != 0, bytes[i]);
        if (random_below(&random, 8))
            continue; /* a look sees what has not been folded: peaks must be right before, too */
        look();
        for (enum stat_pool pool = 0; pool <= STAT_POOLS; pool++)
            compare(&sums[pool], pool);
        assert_true(PEAK(inactive_split_bytes) >= NOW(inactive_split_bytes));
        assert_true(now.at_peak_allocated[MOMENT_allocated_bytes] == PEAK(allocated_bytes));
    }
}

static void peaks_of_one_thread_are_exact(void **state)
{
    (void)state;
    random_steps(4000, 0, 7);
    assert_true(stats_get(&now, COUNTER_num_thread_hits) > 500);
    assert_true(COUNTER(peak_uncertainty_bytes) == 0);
    as(1);
    get(4096);
    assert_true(COUNTER(peak_uncertainty_bytes) == 2 * policy.alone_least);
}

/* A large request need not fold what its thread counted alone, unless a peak is near. */
static void peaks_are_exact_beside_large_blocks(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        cache_world_remake("expandable_segments:True"); /* else blocks are larger than asked for */
        random_steps(1000, 2 + seed % 4 * 8, seed);
        assert_true(stats_get(&now, COUNTER_num_thread_hits) > 50);
    }
}

static void a_large_request_folds_nothing(void **state)
{
    (void)state;
    cache_world_remake("expandable_segments:True");
    uint64_t large = take(20 * MIB), small = get(4096);
    give(large);
    put(small);
    get(4096);
    for (int i = 0; i < 100; i++) {
        large = take(8 * MIB); /* far below the peak */
        put(get(4096));
        give(large);
        assert_true(caches[0]->touched);
    }
    take(20 * MIB); /* at the peak, with what was counted alone */
    assert_false(caches[0]->touched);
}

/* Nothing grows, and neither what is asked for nor the number of blocks comes near its peak. */
static void a_large_request_passes_a_peak_with_what_was_counted_alone(void **state)
{
    (void)state;
    enum { LARGE = 10, SMALL = 11, BYTES = 19 * MIB / LARGE / 512 * 512 };
    uint64_t large[LARGE], small[SMALL];
    cache_world_remake("expandable_segments:True");
    for (int i = 1; i < SMALL; i++)
        small[i] = get(512);
    for (int i = 0; i < LARGE; i++)
        large[i] = take(BYTES);
    uint64_t peak = LARGE * BYTES + (SMALL - 1) * 512, reserved = CURRENT(reserved_bytes);
    assert_true(PEAK(allocated_bytes) == peak);
    for (int i = 0; i < LARGE; i++)
        give(large[i]);
    small[0] = get(512);
    for (int i = 0; i < SMALL; i++)
        put(small[i]);
    take(4 * BYTES);
    put(get(1)); /* knows how far it may go */
    take(4 * BYTES);
    for (int i = 0; i < SMALL; i++)
        small[i] = get(1);
    assert_true(caches[0]->touched);
    take(2 * BYTES);
    assert_int_equal(CURRENT(reserved_bytes), reserved);
    for (int i = 0; i < SMALL; i++)
        put(small[i]);
    look();
    assert_true(PEAK(allocated_bytes) == peak + 512);
}

/* This thread has ten blocks of 4096 and ten of 512 bytes in its cache. The most there was are
 * twenty blocks and `large` bytes; now it holds 14 MiB in seven, and knows how far it may go. */
static void far_below(uint64_t large)
{
    uint64_t small[20];
    cache_world_remake("expandable_segments:True");
    put(get(4096)); /* these have a chunk of their own */
    give(take(large));
    for (int i = 0; i < 20; i++)
        small[i] = get(i % 2 ? 4096 : 512);
    for (int i = 0; i < 20; i++)
        put(small[i]);
    take(2 * MIB); /* counts these for all */
    put(get(4096));
    for (int i = 0; i < 6; i++)
        take(2 * MIB);
}

/* But the peaks are nearer then. */
static void a_large_request_brings_the_peaks_nearer(void **state)
{
    (void)state;
    far_below(32 * MIB);
    for (int i = 0; i < 6; i++)
        take(2 * MIB);
    for (int i = 0; i < 7; i++)
        get(i % 2 ? 4096 : 512);
    put(get(512)); /* the twenty-first */
    look();
    assert_true(now.stat[STAT_allocation].peak[STAT_POOLS] == 21);

    far_below(20 * MIB);
    take(6 * MIB - 512);
    get(100);
    put(get(100)); /* 512 bytes more, but none requested */
    look();
    assert_true(now.stat[STAT_allocated_bytes].peak[STAT_POOLS] == 20 * MIB + 512);
    assert_true(now.stat[STAT_requested_bytes].peak[STAT_POOLS] == 20 * MIB);

    far_below(20 * MIB - 500);
    take(6 * MIB - 512);
    put(get(512)); /* 500 requested more */
    look();
    assert_true(now.stat[STAT_allocated_bytes].peak[STAT_POOLS] == 20 * MIB);
    assert_true(now.stat[STAT_requested_bytes].peak[STAT_POOLS] == 20 * MIB);
}

static void a_large_request_passes_them_with_what_was_counted_alone(void **state)
{
    (void)state;
    far_below(20 * MIB);
    get(100);
    give(take(6 * MIB - 300)); /* 512 bytes too many, but none requested */
    look();
    assert_true(now.stat[STAT_allocated_bytes].peak[STAT_POOLS] == 20 * MIB + 512);

    far_below(20 * MIB - 500);
    get(512);
    give(take(6 * MIB - 512));
    look();
    assert_true(now.stat[STAT_allocated_bytes].peak[STAT_POOLS] == 20 * MIB);
    assert_true(now.stat[STAT_requested_bytes].peak[STAT_POOLS] == 20 * MIB);
}

static void a_batch_that_comes_back_moves_no_limit(void **state)
{
    (void)state;
    uint64_t held[24];
    for (int i = 0; i < 24; i++)
        held[i] = get(128 * KIB);
    for (int i = 0; i < 24; i++)
        put(held[i]);
    assert_true(transfer_any(w.a, 128 * KIB));
    for (int i = 0; i < 8; i++)
        take(4096);
    put(get(512)); /* and now it knows how far it may go */
    for (int i = 0; i < 17; i++)
        get(128 * KIB);
    put(get(128 * KIB));
    assert_false(transfer_any(w.a, 128 * KIB));
    look();
    assert_true(now.stat[STAT_allocation].peak[STAT_POOLS] == 26);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CACHE(peaks_of_one_thread_are_exact),
        CACHE(peaks_are_exact_beside_large_blocks),
        CACHE(a_large_request_folds_nothing),
        CACHE(a_large_request_passes_a_peak_with_what_was_counted_alone),
        CACHE(a_large_request_brings_the_peaks_nearer),
        CACHE(a_large_request_passes_them_with_what_was_counted_alone),
        CACHE(a_batch_that_comes_back_moves_no_limit),
    };
    return cmocka_run_group_tests_name("peaks", tests, NULL, NULL);
}
