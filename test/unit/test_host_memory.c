/* The host itself runs out of memory: requests are passed on, frees succeed, and nothing is lost.
 * mmap is replaced by the linker (--wrap). */
#include "world.h"

#include <errno.h>
#include <sys/mman.h>

#include "allocator/state/domain.h"

static int no_memory;
static int some = -1; /* that many times there is some; -1: always */

void *__real_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);

void *__wrap_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (no_memory || !some) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    some -= some > 0;
    return __real_mmap64(address, bytes, protection, flags, fd, offset);
}

/* Each kind of struct is mapped by itself, so that each can be what is missing. */
static void lie_apart(struct domain *domain)
{
    domain->blocks.metadata = domain->segment_slab.metadata = domain->fences.metadata = NULL;
    domain->allocators.metadata = domain->cache_slab.metadata = domain->listed.metadata = NULL;
}

static int setup(void **state)
{
    no_memory = 0;
    int failed = world_setup(state);
    lie_apart(w.domain);
    return failed;
}

static void nothing_can_be_made(void **state)
{
    (void)state;
    no_memory = 1;
    assert_null(domain_create(&w.options));
    no_memory = 0;
    struct domain *fresh = domain_create(&w.options);
    lie_apart(fresh);
    no_memory = 1;
    assert_null(allocator_create(fresh, &fake_ops, &w.device, 1, 0, &w.stats, UINT64_MAX));
}

/* Without mapped memory's structs there is none, and nothing is kept of what was made for it. */
static void mapped_memory_is_had_whole_or_not(void **state)
{
    int mapped = 0;
    (void)state;
    for (int times = 0; !mapped; times++) {
        assert_true(times < 10);
        struct fake_device device;
        struct device_stats stats = {0};
        uint64_t address;
        fake_init(&device, 64 * MIB);
        w.options.expandable = EXPANDABLE_TRUE;
        struct domain *domain = domain_create(&w.options);
        lie_apart(domain);
        some = times;
        struct allocator *a = allocator_create(domain, &fake_ops, &device, 1, 0, &stats, 64 * MIB);
        some = -1;
        if (!a)
            continue;
        mapped = allocator_maps(a);
        assert_int_equal(device.ranges, mapped);
        assert_true(mapped || !domain->segment_slab.chunk || domain->segment_slab.free);
        assert_int_equal(allocator_malloc(a, 20 * MIB, &address), 0);
    }
}

/* From the first block on: whatever struct is missing, the request is passed on to the driver, and what it
 * gave for the cache is given back. */
static void requests_are_passed_on_and_nothing_leaks(void **state)
{
    uint64_t first[4096], count = 0, address;
    (void)state;
    no_memory = 1;
    assert_int_equal(try_take(512), ALLOCATOR_PASS);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(COUNTER(num_ooms), 0);
    no_memory = 0;
    first[count++] = take(20 * MIB);
    give(take(20 * MIB)); /* so that there is a fence */
    no_memory = 1;
    int code;
    while ((code = allocator_malloc(w.a, 20 * MIB, &address)) == 0 && count < 4096)
        first[count++] = address;
    assert_int_equal(code, ALLOCATOR_PASS);
    assert_in_range(count, 2, 4095);
    assert_int_equal(w.device.used, CURRENT(reserved_bytes));
    assert_int_equal(CURRENT(allocation), count);
    while (count)
        give(first[--count]);
    assert_int_equal(CURRENT(allocation), 0);
    give(take(20 * MIB)); /* what is cached serves on */
    no_memory = 0;
    first[0] = take(64 * MIB);
}

/* Without a struct for the rest a block is handed out whole. */
static void a_block_that_cannot_be_split_stays_whole(void **state)
{
    uint64_t count = 0, address;
    (void)state;
    w.domain->listed.metadata = &w.domain->metadata; /* the map has enough for all structs */
    uint64_t whole = take(100 * MIB);
    give(take(512)); /* so that there is a fence */
    no_memory = 1;
    while (allocator_malloc(w.a, 512, &address) == 0)
        count++;
    assert_in_range(count, 10, 1000000);
    give(whole);
    assert_int_equal(take(50 * MIB), whole);
    assert_int_equal(CURRENT_IN(inactive_split, LARGE_POOL), 0);
    give(whole);
    no_memory = 0;
    assert_int_equal(take(50 * MIB), whole);
    assert_int_equal(CURRENT_IN(inactive_split_bytes, LARGE_POOL), 50 * MIB);
}

/* A free always succeeds: without a fence its block waits for the next. */
static void frees_wait_for_a_later_fence(void **state)
{
    static uint64_t block[8000];
    uint64_t count = sizeof block / sizeof *block;
    (void)state;
    w.device.instant = 0;
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(allocator_malloc(w.a, 512, &block[i]), 0);
    no_memory = 1;
    for (uint64_t i = 0; i + 1 < count; i++)
        assert_int_equal(domain_free(w.domain, block[i], FREED_NATIVE), 0);
    assert_true(w.device.recorded < count / 2); /* most found no fence */
    no_memory = 0;
    pass_all();
    domain_poll(w.domain);
    assert_true(CURRENT(active) > count / 2);
    give(block[count - 1]);
    pass_all();
    domain_poll(w.domain);
    assert_int_equal(CURRENT(active), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_can_be_made, setup),
        cmocka_unit_test_setup(mapped_memory_is_had_whole_or_not, setup),
        cmocka_unit_test_setup(requests_are_passed_on_and_nothing_leaks, setup),
        cmocka_unit_test_setup(a_block_that_cannot_be_split_stays_whole, setup),
        cmocka_unit_test_setup(frees_wait_for_a_later_fence, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
