#include "handle_world.h"

#include <string.h>

uint64_t low, between, high, second;

void handle_world_remake(const char *conf, uint64_t capacity)
{
    world_remake(conf, capacity);
    second = BLOCK;
    for (int i = 0; i < 10; i++) {
        give(take(64 * MIB));
        domain_empty_cache(w.domain, 1);
    }
    memset(w.device.calls, 0, sizeof w.device.calls);
}

int handle_world_setup(void **state)
{
    (void)state;
    handle_world_remake("expandable_segments:True", 64 * GIB);
    return 0;
}

int handle_world_alone(void **state)
{
    (void)state;
    world_remake("expandable_segments:True", 64 * GIB);
    second = BLOCK + HANDLE;
    return 0;
}

void make_room(void)
{
    low = take(BLOCK);
    between = take(4 * MIB);
    high = take(second);
    give(low);
    give(high);
}

static enum fake_call last_call;

static void end_context(struct fake_device *device, enum fake_call call, int after)
{
    if (call != last_call || after)
        return;
    device->meanwhile = NULL;
    allocator_forget(w.a);
}

void end_context_at(enum fake_call call)
{
    last_call = call;
    w.device.meanwhile = end_context;
}

void assert_all_goes_back(void)
{
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    assert_int_equal(CURRENT(segment), 0);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.mapped, 0);
}
