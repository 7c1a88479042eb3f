#include "interpose/lifecycle/sampler.h"

#include "interpose/process/process.h"
#include "stats/counters/levels.h"
#include "stats/os/clock.h"

#define MOST_NS UINT64_C(100000000)
#define LEAST_NS UINT64_C(10000000)
#define LOOKS 600 /* of a life that is younger than a minute; of a minute, later */

/* What earlier looks have found, by series. The page may have been changed by others since. */
static struct WIPED sampler {
    unsigned count; /* series in use */
    struct seen {
        unsigned row;
        uint64_t peak_allocated, peak_reserved;
        uint64_t free; /* plus one; 0: not known */
    } seen[SERIES_MOST];
} sampler;
static const struct wiped wiped WIPED_ENTRY = {&sampler, sizeof sampler};

static uint64_t age_ns(void)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC), start = process.page->start_monotonic_ns;
    return now > start ? now - start : 0;
}

/* Gives each device that has come into use a series, while there are any. */
static void find_devices(void)
{
    struct page *page = process.page;
    for (unsigned row = 0; row < page->device_count; row++) {
        unsigned i = 0;
        while (i < sampler.count && sampler.seen[i].row != row)
            i++;
        if (i < sampler.count || sampler.count == page->series_count ||
            !stat_get(&page_device(page, row)->used))
            continue;
        sampler.seen[sampler.count++] = (struct seen){.row = row};
        stat_set(&page_series(page, i)->device, row + 1);
    }
}

/* A peak that has risen since the last look is that of the time since then, whatever is held now. */
static uint64_t most_since(uint64_t now, uint64_t peak, uint64_t *seen)
{
    int risen = peak > *seen;
    *seen = risen ? peak : *seen;
    return risen ? peak : now < *seen ? now : *seen;
}

int sampler_look(void)
{
    struct page *page = process.page;
    int changed = 0;
    if (!page->own.series)
        return 0;
    find_devices();
    for (unsigned i = 0; i < sampler.count; i++) {
        struct seen *seen = &sampler.seen[i];
        struct stats_levels levels;
        if (stats_levels(&levels, &page_device(page, seen->row)->stats, page->cache, PAGE_CACHES,
                         seen->row))
            continue;
        const struct series_look look = {
            .time_ns = age_ns(),
            .allocated = most_since(levels.allocated, levels.peak_allocated, &seen->peak_allocated),
            .reserved = most_since(levels.reserved, levels.peak_reserved, &seen->peak_reserved),
            .free = seen->free - 1,
        };
        changed |= series_add(&page->own.series[i], page_series(page, i), &look);
    }
    return changed;
}

void sampler_ask_driver(void)
{
    for (unsigned i = 0; i < sampler.count; i++) {
        uint64_t bytes;
        const struct device_stats *stats = &page_device(process.page, sampler.seen[i].row)->stats;
        if (domain_query_free(process.domain, stats, &bytes) == 0)
            sampler.seen[i].free = bytes + 1;
    }
}

uint64_t sampler_interval_ns(void)
{
    uint64_t interval = age_ns() / LOOKS;
    return interval < LEAST_NS ? LEAST_NS : interval > MOST_NS ? MOST_NS : interval;
}
