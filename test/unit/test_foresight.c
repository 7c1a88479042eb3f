/* What a thread frees next of another one's blocks. */
#include "allocator/thread_cache/locked.h"
#include "cache_world.h"

/* So that no peak is in the way of taking and freeing them alone. */
static void take_again(uint64_t *block, int count)
{
    for (int i = 0; i < count; i++)
        block[i] = get(4096);
    for (int i = 0; i < count; i++)
        put(block[i]);
    for (int i = 0; i < count; i++)
        assert_true(block[i] = allocator_hit_alone(w.a, 4096));
    give(take(4 * MIB)); /* what was counted alone is counted for all */
}

static struct block *of(uint64_t address)
{
    return domain_block_at(w.domain, address);
}

static void what_another_thread_took_is_foreseen(void **state)
{
    (void)state;
    enum { MOST = 32 };
    uint64_t block[MOST];
    as(1);
    cached(4096);
    as(0);
    for (int i = 0; i < 2 * TAKEN; i++)
        put(get(4096));
    take_again(block, MOST);
    as(1);
    for (int i = 0; i < 8; i++) {
        assert_true(domain_free_alone(block[i]));
        assert_ptr_equal(caches[1]->expected, i ? of(block[i + 1]) : NULL);
    }
    put(block[12]); /* not the next: nothing is, before two in a row */
    assert_null(caches[1]->expected);
    put(block[13]);
    assert_ptr_equal(caches[1]->expected, of(block[14]));
    put(get(4096)); /* one's own */
    assert_null(caches[1]->expected);
    for (int i = 20; i < MOST; i++)
        put(block[i]);
    assert_null(caches[1]->expected); /* it was the last */
}

static void none_is_inside(uint64_t address)
{
    for (unsigned i = 1; i <= 512; i++)
        assert_false(domain_free_alone(address + i));
}

/* Its claim decides. */
static void what_is_foreseen_wrongly_is_not_freed(void **state)
{
    uint64_t block[8];
    (void)state;
    as(1);
    cached(4096);
    as(0);
    take_again(block, 8);
    as(1);
    for (int i = 0; i < 3; i++)
        put(block[i]);
    assert_ptr_equal(caches[1]->expected, of(block[3]));
    none_is_inside(block[3]);
    as(0);
    put(block[3]);
    as(1);
    none_is_inside(block[3]);
    assert_false(domain_free_alone(block[3]));
    assert_int_equal(try_give(block[3]), ALLOCATOR_INVALID);
    put(block[4]);
    as(0);
    assert_true(get(4096) == block[3]);
    as(1);
    put(block[3]);
    look();
    assert_true(NOW(allocation) == 3);
}

static void what_a_thread_took_is_foreseen_when_it_has_ended(void **state)
{
    (void)state;
    uint64_t block[8];
    as(1);
    cached(4096);
    as(0);
    take_again(block, 8);
    domain_thread_ends(w.domain);
    as(1);
    for (int i = 0; i < 8; i++) {
        put(block[i]);
        assert_ptr_equal(caches[1]->next_taken, i < 7 ? of(block[i + 1]) : NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CACHE(what_another_thread_took_is_foreseen),
        CACHE(what_is_foreseen_wrongly_is_not_freed),
        CACHE(what_a_thread_took_is_foreseen_when_it_has_ended),
    };
    return cmocka_run_group_tests_name("foresight", tests, NULL, NULL);
}
