#include "stats/counters/levels.h"

#include "stats/os/pause.h"

static uint64_t not_negative(uint64_t value)
{
    return value > INT64_MAX ? 0 : value;
}

int stats_levels(struct stats_levels *to, const struct device_stats *from,
                 const struct cache_row *rows, unsigned count, unsigned device)
{
    for (int tries = 0;;) {
        uint64_t before = atomic_load_explicit(&from->sequence, memory_order_acquire), alone = 0;
        for (unsigned i = 0; i < count; i++)
            if (stat_get(&rows[i].device) == device + 1)
                alone += stat_get(&rows[i].allocated_bytes) - stat_get(&rows[i].freed_bytes);
        *to = (struct stats_levels){
            .allocated = not_negative(stats_current_all(from, STAT_allocated_bytes) + alone),
            .reserved = not_negative(stats_current_all(from, STAT_reserved_bytes)),
            .peak_allocated = stat_get(&from->stat[STAT_allocated_bytes].peak[STAT_POOLS]),
            .peak_reserved = stat_get(&from->stat[STAT_reserved_bytes].peak[STAT_POOLS]),
        };
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && stat_get(&from->sequence) == before)
            return 0;
        if (!pause_between(tries++))
            return -1;
    }
}
