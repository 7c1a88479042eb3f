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

void sites_note_peak(struct sites *sites, uint64_t device, uint64_t bytes)
{
    if (device >= SITE_DEVICES)
        return;
    struct site_peak *peak = &sites->peak[device];
    uint64_t known = stat_get(&peak->bytes);
    while ((int64_t)(bytes - known) > 0)
        if (atomic_compare_exchange_weak(&peak->bytes, &known, bytes)) {
            atomic_fetch_add(&peak->number, 1);
            return;
        }
}

/* Whole numbers only, since the program may trap floating point: `one` is 1 in 62 bits. */
typedef unsigned __int128 wide;
static const uint64_t one = UINT64_C(1) << 62;

static uint64_t times(uint64_t a, uint64_t b)
{
    return (uint64_t)((wide)a * b >> 62);
}

/* exp(-x) of x = `parts` / 2^57, below 44, to 8 digits: exp(-x / 1024), then ten squares. */
static uint64_t decay(uint64_t parts)
{
    uint64_t y = parts >> 5; /* x / 1024 of `one` */
    uint64_t power = one - y / 5;
    for (uint64_t n = 4; n > 0; n--)
        power = one - times(y, power) / n;
    for (int i = 0; i < 10; i++)
        power = times(power, power);
    return power;
}

struct weight {
    uint64_t bytes, blocks, variance;
};

/* The bytes for which a sampled request stands: s / (1 - exp(-s / M)). For small x = s / M that is
 * M (1 + x / 2 + x^2 / 12 - x^4 / 720). */
static uint64_t weight_of(uint64_t bytes, unsigned rate)
{
    uint64_t mean = site_mean(rate);
    if (bytes / mean >= 44)
        return bytes;
    uint64_t parts = bytes << (37 - rate); /* of 2^57 */
    if (bytes >= mean / 4)
        return (uint64_t)(((wide)bytes << 62) / (one - decay(parts)));
    uint64_t x = parts << 5, square = times(x, x);
    uint64_t more = x / 2 + square / 12 - times(square, square) / 720;
    return mean + times(mean, more);
}

/* The same for the same arguments: a free takes away what its request added. The variance is
 * s^2 (1 - p) / p^2. */
static struct weight weigh(uint64_t bytes, unsigned rate)
{
    if (rate == 0 || rate > SITE_RATES)
        return (struct weight){bytes, SITE_PARTS, 0};
    uint64_t stands = weight_of(bytes, rate);
    wide variance = (wide)stands * (stands - bytes) / ((uint64_t)SITE_GRAIN * SITE_GRAIN);
    return (struct weight){stands, (uint64_t)(((wide)stands * SITE_PARTS + bytes / 2) / bytes),
                           (uint64_t)variance};
}

static void hold(struct site_held *held, struct weight weight, int live)
{
    stat_increase(&held->bytes, live > 0 ? weight.bytes : -weight.bytes);
    stat_increase(&held->blocks, live > 0 ? weight.blocks : -weight.blocks);
    stat_increase(&held->variance, live > 0 ? weight.variance : -weight.variance);
}

/* The first change at a site after a peak keeps what the site held until then. */
static void keep_peak(struct sites *sites, struct site *site)
{
    uint64_t number = site->device < SITE_DEVICES ? stat_get(&sites->peak[site->device].number) : 0;
    if (stat_get(&site->peak) == number)
        return;
    stat_set(&site->at_peak.bytes, stat_get(&site->live.bytes));
    stat_set(&site->at_peak.blocks, stat_get(&site->live.blocks));
    stat_set(&site->at_peak.variance, stat_get(&site->live.variance));
    stat_set(&site->peak, number);
}

void sites_count(struct sites *sites, uint32_t mark, uint64_t bytes, int live)
{
    uint32_t place = site_place(mark);
    if (!place || place > SITES || !bytes)
        return;
    struct site *site = &sites->site[place - 1];
    struct weight weight = weigh(bytes, site_rate(mark));
    keep_peak(sites, site);
    hold(&site->live, weight, live);
    if (live > 0)
        stat_increase(&site->allocations, weight.blocks);
}

const struct site_held *sites_at_peak(const struct sites *sites, const struct site *site,
                                      uint64_t bytes)
{
    static const struct site_held nothing;
    if (site->device >= SITE_DEVICES)
        return &nothing;
    const struct site_peak *peak = &sites->peak[site->device];
    int changed = (int64_t)(bytes - stat_get(&peak->bytes)) <= 0 &&
                  stat_get(&site->peak) == stat_get(&peak->number);
    return changed ? &site->at_peak : &site->live;
}
