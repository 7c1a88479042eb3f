/* The lock: one at a time; and threads that sleep for long keep no processor from who has it. */
#include "world.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "allocator/base/lock.h"

#define THREADS 200
#define TURNS 100

static struct lock lock;
static unsigned counted; /* under it */
static pthread_t thread[THREADS];

static void *count(void *unused)
{
    for (int i = 0; i < TURNS; i++) {
        lock_take(&lock);
        counted++;
        lock_give(&lock);
    }
    return unused;
}

static void begin_threads(void)
{
    counted = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, count, NULL), 0);
}

static void end_threads(void)
{
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(counted, THREADS * TURNS);
    assert_int_equal(lock.sleepers, 0);
    assert_int_equal(lock.waking, 0);
}

static void one_at_a_time(void **state)
{
    (void)state;
    begin_threads();
    end_threads();
}

static long switches(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_nvcsw;
}

/* A second: each by itself a thousand times, all together about as often. */
static void sleepers_seldom_look(void **state)
{
    (void)state;
    lock_take(&lock);
    begin_threads();
    while (lock.sleepers < THREADS)
        usleep(1000);
    long before = switches();
    usleep(1000000);
    assert_in_range(switches() - before, 0, 10 * 1000);
    lock_give(&lock);
    end_threads();
}

static _Atomic unsigned rung;

static void ring(void)
{
    lock_take(&lock); /* called without the lock */
    lock_give(&lock);
    rung++;
}

static void rings_once(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        lock_take(&lock);
        lock_ring_once(&lock, ring);
        lock_give_quietly(&lock);
        assert_int_equal(rung, again);
        begin_threads();
        end_threads();
        assert_int_equal(rung, again + 1);
        assert_false(lock_ring_no_more(&lock));
    }
    lock_take(&lock);
    lock_ring_once(&lock, ring);
    lock_give_quietly(&lock);
    assert_true(lock_ring_no_more(&lock));
    begin_threads();
    end_threads();
    assert_int_equal(rung, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(sleepers_seldom_look),
        cmocka_unit_test(rings_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
