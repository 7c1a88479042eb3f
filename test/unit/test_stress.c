/* Several threads on two contexts of one domain: no two ever hold the same bytes, and the books are
 * true at the end. Random, with fixed seeds; the interesting build is the one with ThreadSanitizer.
 */
#include "world.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "allocator/state/domain.h"
#include "random.h"

#define THREADS 4
#define HELD 64
#define GRAIN 512
#define SHADOW ((uint64_t)64 * GIB / GRAIN)
#define FIRST UINT64_C(0x7f0000000000)

static _Atomic unsigned char *shadow; /* of each 512 bytes: who holds them */
static struct fake_device devices[2];
static struct allocator *allocators[2];
static _Atomic int failures;
static int steps = 2000;

static void claim(uint64_t address, uint64_t bytes, unsigned char from, unsigned char to)
{
    uint64_t first = (address - FIRST) / GRAIN, last = first + (bytes - 1) / GRAIN;
    uint64_t step = last - first > 64 ? (last - first) / 64 : 1;
    for (uint64_t i = first; i <= last; i += i + step > last && i < last ? last - i : step) {
        unsigned char expected = from;
        if (i >= SHADOW || !atomic_compare_exchange_strong(&shadow[i], &expected, to))
            atomic_fetch_add(&failures, 1);
    }
}

static uint64_t some_size(uint64_t *seed)
{
    static const uint64_t most[] = {2048, 65536, MIB, 4 * MIB, 24 * MIB};
    return 1 + random_below(seed, most[random_below(seed, 5)]);
}

static void *run(void *argument)
{
    unsigned char self = (unsigned char)(uintptr_t)argument;
    uint64_t seed = UINT64_C(0x1234567) * self, address[HELD] = {0}, bytes[HELD] = {0};
    for (int step = 0; step < steps; step++) {
        uint64_t i = random_below(&seed, HELD), dice = random_below(&seed, 1000);
        if (address[i]) {
            claim(address[i], bytes[i], self, 0);
            if (domain_free(w.domain, address[i], FREED_NATIVE))
                atomic_fetch_add(&failures, FREED_LATE);
            address[i] = 0;
        } else if (dice < 5) {
            domain_empty_cache(w.domain, dice & 1);
        } else if (dice < 15) {
            domain_poll(w.domain);
        } else if (dice < 20) {
            domain_captures_ended(w.domain);
        } else {
            struct allocator *a = allocators[dice & 1];
            uint64_t size = some_size(&seed), got;
            int code = dice < 300 ? allocator_hit(a, size, &got) : allocator_malloc(a, size, &got);
            if (code == 0) {
                claim(got, size, 0, self);
                address[i] = got;
                bytes[i] = size;
            } else if (code != FAKE_OOM && code != ALLOCATOR_MISS) {
                atomic_fetch_add(&failures, 1);
            }
        }
    }
    for (int i = 0; i < HELD; i++)
        if (address[i]) {
            claim(address[i], bytes[i], self, 0);
            domain_free(w.domain, address[i], FREED_NATIVE);
        }
    return NULL;
}

static void stress(const char *conf, int record_code)
{
    pthread_t thread[THREADS + 1];
    struct device_stats copy;
    if (!steps)
        skip();
    world_remake(conf, GIB);
    allocators[0] = w.a;
    fake_init(&devices[1], 700 * MIB);
    allocators[1] = world_add(&devices[1], NULL);
    w.device.instant = devices[1].instant = 0;
    w.device.code[FAKE_RECORD] = record_code;
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run, (void *)(i + 1)), 0);
    for (int i = 0; i < 200; i++) { /* readers are never in the way, nor is time */
        if (i % 10 == 0 &&
            stats_copy(&copy, &w.stats) == 0) /* else: its writer was put aside in the middle */
            assert_true(stats_current_all(&copy, STAT_allocated_bytes) <=
                        stats_current_all(&copy, STAT_reserved_bytes));
        for (int d = 0; d < 2; d++) {
            struct fake_device *device = d ? &devices[1] : &w.device;
            pthread_mutex_lock(&device->lock);
            device->passed += (device->recorded - device->passed) / 2;
            pthread_mutex_unlock(&device->lock);
        }
        sched_yield();
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
    assert_true(allocator_is_valid(w.a));
    assert_int_equal(CURRENT(allocated_bytes), 0);
    assert_int_equal(CURRENT(allocation), 0);
    assert_int_equal(w.device.used + devices[1].used, CURRENT(reserved_bytes));
    w.device.code[FAKE_RECORD] = 0;
    domain_captures_ended(w.domain);
    w.device.instant = devices[1].instant = 1;
    domain_empty_cache(w.domain, 1);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    assert_int_equal(CURRENT(active_bytes), 0);
    assert_int_equal(w.device.used + devices[1].used, 0);
}

static void with_fences(void **state)
{
    (void)state;
    stress("", 0);
}

static void strict(void **state)
{
    (void)state;
    stress("free_mode:strict", 0);
}

static void with_a_limit_and_garbage_collection(void **state)
{
    (void)state;
    stress("memory_limit_mb:600,garbage_collection_threshold:0.5,max_split_size_mb:20", 0);
}

static void one_context_always_capturing(void **state)
{
    (void)state;
    stress("", DEVICE_DEFERRED);
}

static void dedicated_segments(void **state)
{
    (void)state;
    stress("ipc:dedicated", 0);
}

static int setup(void **state)
{
    (void)state;
    const char *more = getenv("CACHALOT_TEST_STEPS");
    if (more)
        steps = atoi(more);
    if (shadow)
        munmap((void *)shadow, SHADOW);
    shadow = mmap(NULL, SHADOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    return (void *)shadow == MAP_FAILED;
}

#define STRESS(test) cmocka_unit_test_setup(test, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STRESS(with_fences),
        STRESS(strict),
        STRESS(with_a_limit_and_garbage_collection),
        STRESS(one_context_always_capturing),
        STRESS(dedicated_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
