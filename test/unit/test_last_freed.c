/* A kept block (last_freed.c) changes nothing that can be seen: the same requests get the same addresses,
 * and leave the same numbers, as when every block goes into its pool at once. */
#include <stdlib.h>
#include <string.h>

#include "allocator/pool/arena.h"
#include "allocator/last_freed.h"
#include "allocator/share.h"
#include "random.h"
#include "world.h"

#define LIVE 24
#define STEPS 2000

static const struct lane_ops no_work;

struct seen {
    uint64_t address; /* from the first one of its kind on: of segments, of mapped memory */
    struct device_stats stats;
};

static uint64_t kept_pairs; /* requests that got what was kept */

static void world_with(const char *conf)
{
    world_remake(conf, 400 * MIB);
    lane_start(w.domain, &no_work); /* nothing is ever submitted: all frees are reusable at once */
}

static uint64_t take_one(uint64_t bytes)
{
    uint64_t address = 0;
    int had = w.domain->last_freed.block != NULL;
    int code = allocator_malloc(w.a, bytes, &address);
    assert_true(code == 0 || code == FAKE_OOM);
    assert_true(allocator_is_valid(w.a));
    kept_pairs += had && w.a->taken && block_address(w.a->taken) == address;
    return address;
}

static void give_one(uint64_t address)
{
    assert_int_equal(domain_free(w.domain, address, FREED_NATIVE), 0);
    assert_true(allocator_is_valid(w.a));
}

static int is_mapped(uint64_t address)
{
    const struct arena *arena = w.a->arena;
    return arena && address - arena->base < arena->reserved;
}

static void let_go(void)
{
    domain_lock(w.domain);
    domain_unlock(w.domain);
}

/* One random life; `at_once`: nothing stays kept. */
static void live(uint64_t random, const char *conf, int at_once, struct seen *seen)
{
    static const uint64_t sizes[] = {600 * KIB, 3 * MIB / 2, 3 * MIB, 5 * MIB, 11 * MIB, 21 * MIB};
    uint64_t block[LIVE] = {0}, firsts[2] = {0}, *last = block;
    world_with(conf);
    for (int step = 0; step < STEPS; step++) {
        uint64_t *one = random_below(&random, 3) ? &block[random_below(&random, LIVE)] : last;
        uint64_t bytes = sizes[random_below(&random, 6)], address = 0;
        unsigned pairs = (unsigned)random_below(&random, 4);
        if (*one)
            give_one(*one);
        if (at_once)
            let_go();
        seen[step].stats = w.stats;
        *one = 0;
        for (unsigned i = 0; random_below(&random, 3) && i <= pairs; i++) {
            if (*one)
                give_one(*one);
            if (at_once)
                let_go();
            *(last = one) = address = take_one(bytes - random_below(&random, 2) * 100);
        }
        uint64_t *first = &firsts[is_mapped(address)];
        *first = *first ? *first : address;
        seen[step].address = address ? address - *first : 0;
        if (random_below(&random, 50) == 0)
            domain_empty_cache(w.domain, 0);
    }
}

static void alike(const char *conf)
{
    struct seen *seen = calloc(2 * STEPS, sizeof *seen);
    assert_non_null(seen);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        live(seed, conf, 1, seen);
        kept_pairs = 0;
        live(seed, conf, 0, seen + STEPS);
        assert_true(kept_pairs > STEPS / 10);
        for (int step = 0; step < STEPS; step++) {
            struct seen *a = &seen[step], *b = &seen[STEPS + step];
            a->stats.sequence = b->stats.sequence =
                0; /* how often they changed is another matter */
            stats_set(&a->stats, COUNTER_movable_bytes, 0); /* known when a block is in its pool */
            stats_set(&b->stats, COUNTER_movable_bytes, 0);
            assert_int_equal(a->address, b->address);
            assert_memory_equal(&a->stats, &b->stats, sizeof a->stats);
        }
    }
    free(seen);
}

static void in_segments(void **state)
{
    (void)state;
    alike("thread_cache:off");
    alike("thread_cache:off,max_split_size_mb:20,large_segment_size_mb:64");
}

static void in_mapped_memory(void **state)
{
    (void)state;
    alike("thread_cache:off,expandable_segments:True");
}

/* The same size again and again touches no pool. */
static void pairs_leave_the_pool_alone(void **state)
{
    (void)state;
    world_with("");
    uint64_t block = take_one(3 * MIB);
    give_one(block);
    assert_true(take_one(3 * MIB) == block);
    give_one(block);
    assert_true(w.domain->last_freed.block && COUNTER(reusable_bytes) == 20 * MIB);
    for (int i = 0; i < 100; i++) {
        assert_true(take_one(3 * MIB) == block);
        assert_true(COUNTER(largest_allocatable_bytes) == 17 * MIB);
        give_one(block);
        assert_true(w.domain->last_freed.block && COUNTER(largest_allocatable_bytes) == 20 * MIB);
    }
    assert_int_equal(COUNTER(num_hits), 101);
    assert_true(take_one(4 * MIB) == block); /* another size: of the whole segment */
    assert_null(w.domain->last_freed.block);
}

/* What is kept is free: freed once more it is an error, and the lock's next holder pools it. */
static void kept_is_free(void **state)
{
    (void)state;
    world_with("");
    uint64_t block = take_one(3 * MIB);
    give_one(block);
    give_one(take_one(3 * MIB));
    assert_non_null(w.domain->last_freed.block);
    assert_int_equal(domain_free(w.domain, block, FREED_NATIVE), ALLOCATOR_INVALID);
    assert_int_equal(COUNTER(num_double_frees), 1);
    give_one(take_one(3 * MIB));
    give_one(take_one(3 * MIB));
    assert_non_null(w.domain->last_freed.block);
    assert_int_equal(domain_empty_cache(w.domain, 0), 20 * MIB);
    assert_true(COUNTER(reusable_bytes) == 0 && CURRENT(reserved_bytes) == 0);
}

/* A free that is not the last request's, or after a pool has changed, goes into the pool. */
static void only_the_last_is_kept(void **state)
{
    (void)state;
    world_with("");
    uint64_t a = take_one(3 * MIB), b = take_one(3 * MIB);
    give_one(a);
    give_one(b);
    a = take_one(3 * MIB);
    b = take_one(3 * MIB);
    give_one(a);
    assert_null(w.domain->last_freed.block);
    give_one(b); /* the pool has changed since it was taken */
    assert_null(w.domain->last_freed.block);
}

/* Memory that others may map is taken from segments of its own, also by who got a block before. */
static void rules_that_change_end_it(void **state)
{
    struct block_place place;
    (void)state;
    world_with("");
    uint64_t exported = take_one(3 * MIB);
    give_one(take_one(5 * MIB));
    uint64_t block = take_one(5 * MIB);
    assert_int_equal(domain_mark(w.domain, exported, BLOCK_EXPORTED, &place), 0);
    give_one(block);
    assert_true(take_one(5 * MIB) != block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(in_segments),  RULE(in_mapped_memory),      RULE(pairs_leave_the_pool_alone),
        RULE(kept_is_free), RULE(only_the_last_is_kept), RULE(rules_that_change_end_it),
    };
    return cmocka_run_group_tests_name("kept", tests, NULL, NULL);
}
