#include "world.h"

#include <stdio.h>
#include <string.h>

#include "allocator/state/domain.h"

struct world w;

uint64_t world_page = BLOCK_GRAIN;

static void complain(void *context, const char *message)
{
    (void)context;
    fail_msg("%s", message);
}

void world_remake(const char *conf, uint64_t capacity)
{
    memset(&w, 0, sizeof w);
    fake_call_as(0);
    fake_init(&w.device, capacity);
    options_default(&w.options);
    w.options.page_bytes = world_page;
    w.options.expandable = EXPANDABLE_FALSE; /* most tests are about segments */
    options_parse(&w.options, conf, OPTIONS_ALL, complain, NULL);
    w.domain = domain_create(&w.options);
    assert_non_null(w.domain);
    w.a = world_add(&w.device, &w.stats);
}

int world_setup(void **state)
{
    (void)state;
    world_page = BLOCK_GRAIN;
    world_remake("", UINT64_MAX);
    return 0;
}

struct allocator *world_add(struct fake_device *device, struct device_stats *stats)
{
    struct allocator *a = allocator_create(w.domain, &fake_ops, device, (uint64_t)(uintptr_t)device,
                                           0, stats ? stats : &w.stats, device->capacity);
    assert_non_null(a);
    return a;
}

static void check(void)
{
    assert_true(allocator_is_valid(w.a));
    uint64_t alone = COUNTER(peak_uncertainty_bytes); /* what threads count for themselves */
    assert_true((int64_t)(CURRENT(active_bytes) - CURRENT(allocated_bytes)) >= 0);
    assert_true((int64_t)(CURRENT(reserved_bytes) + alone - CURRENT(active_bytes)) >= 0);
}

int try_take(uint64_t bytes)
{
    uint64_t address = 0;
    int code = allocator_malloc(w.a, bytes, &address);
    check();
    return code;
}

uint64_t take(uint64_t bytes)
{
    uint64_t address = 0;
    assert_int_equal(allocator_malloc(w.a, bytes, &address), 0);
    check();
    return address;
}

int hit(uint64_t bytes, uint64_t *address)
{
    int code = allocator_hit(w.a, bytes, address);
    check();
    return code;
}

int try_give(uint64_t address)
{
    int code = domain_free(w.domain, address, FREED_NATIVE);
    if (w.device.instant)
        domain_poll(w.domain);
    check();
    return code;
}

void give(uint64_t address)
{
    assert_int_equal(try_give(address), 0);
}

void pass_all(void)
{
    w.device.passed = w.device.recorded;
}
