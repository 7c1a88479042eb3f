#include "stats/events/sites.h"

#include <stdio.h>
#include <string.h>

uint32_t sites_find(struct sites *sites, uint64_t hash, int *is_new)
{
    *is_new = 0;
    for (uint32_t i = 0; i < SITE_TRIES; i++) {
        uint32_t place = (uint32_t)(hash + i) % SITES;
        struct site *site = &sites->site[place];
        uint64_t found = atomic_load_explicit(&site->hash, memory_order_acquire);
        if (found == 0 && atomic_compare_exchange_strong(&site->hash, &found, hash))
            *is_new = 1;
        if (*is_new || found == hash)
            return place + 1;
    }
    atomic_fetch_add(&sites->lost, 1);
    return 0;
}

uint32_t sites_module(struct sites *sites, const char *path, uint64_t bias)
{
    for (uint32_t i = 0; i < SITE_MODULES; i++) {
        struct site_module *module = &sites->module[i];
        uint64_t state = 0;
        if (atomic_compare_exchange_strong(&module->ready, &state, 1)) {
            module->bias = bias;
            snprintf(module->path, sizeof module->path, "%s", path);
            atomic_store_explicit(&module->ready, 2, memory_order_release);
            return i + 1;
        }
        if (state == 2 && module->bias == bias &&
            strncmp(module->path, path, sizeof module->path - 1) == 0)
            return i + 1;
    }
    return 0;
}

void sites_count(struct sites *sites, uint32_t place, uint64_t bytes, int live)
{
    if (!place)
        return;
    struct site *site = &sites->site[place - 1];
    atomic_fetch_add_explicit(&site->live_bytes, live > 0 ? bytes : -bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&site->live_blocks, (uint64_t)(int64_t)live, memory_order_relaxed);
    if (live > 0)
        atomic_fetch_add_explicit(&site->allocations, 1, memory_order_relaxed);
}
