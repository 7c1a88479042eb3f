#include "cache_world.h"

#include <string.h>

struct cache_row rows[ROWS];
struct thread_cache *caches[ROWS];
struct device_stats now;

void as(int i)
{
    thread_cache_own = caches[i];
}

void cache_world_remake(const char *conf)
{
    lane_world_remake(conf);
    memset(rows, 0, sizeof rows);
    for (int i = ROWS - 1; i >= 0; i--) {
        assert_int_equal(domain_thread_begins(w.domain, &rows[i]), 0);
        caches[i] = thread_cache_own;
    }
}

int cache_world_setup(void **state)
{
    (void)state;
    cache_world_remake("");
    return 0;
}

void look(void)
{
    assert_int_equal(stats_gather(&now, &w.stats, rows, ROWS, 0), 0);
}

uint64_t get(uint64_t bytes)
{
    uint64_t address = allocator_hit_alone(w.a, bytes);
    return address ? address : take(bytes);
}

void put(uint64_t address)
{
    if (!domain_free_alone(address))
        give(address);
}

uint64_t cached(uint64_t bytes)
{
    uint64_t address = get(bytes);
    put(address);
    look();
    assert_true(allocator_hit_alone(w.a, bytes) == address);
    assert_true(domain_free_alone(address));
    return address;
}
