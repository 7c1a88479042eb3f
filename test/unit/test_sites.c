/* Call sites: what a sample stands for, and what sites held at the peak of their device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/asked_site.h"
#include "cache_world.h"
#include "stats/events/sites.h"

static struct sites *sites;

static int setup(void **state)
{
    (void)state;
    sites = calloc(1, sizeof *sites);
    assert_non_null(sites);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(sites);
    return 0;
}

static uint32_t place_of(uint64_t hash)
{
    int is_new;
    uint32_t place = sites_find(sites, hash, &is_new);
    assert_int_equal(is_new, 1);
    return place;
}

static struct site *site_at(uint32_t place)
{
    return &sites->site[place - 1];
}

static uint64_t peak_bytes(uint32_t place, uint64_t peak)
{
    return stat_get(&sites_at_peak(sites, site_at(place), peak)->bytes);
}

/* Rounding allows a byte for each, and the square root of 1 byte in the variance. */
static void a_sample_weighs_what_it_stands_for(void **state)
{
    static const uint64_t sizes[] = {1, 512, 4096, 1 << 20, 3 << 20, UINT64_C(5) << 30};
    (void)state;
    for (unsigned rate = 1; rate <= SITE_RATES; rate += 3)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            double s = (double)sizes[i], chance = -expm1(-s / (double)site_mean(rate));
            double variance = s * s * (1 - chance) / (chance * chance);
            memset(sites, 0, sizeof *sites);
            uint32_t place = place_of(7);
            sites_count(sites, site_mark(place, rate), sizes[i], 1);
            double bytes = (double)stat_get(&site_at(place)->live.bytes);
            double found = (double)stat_get(&site_at(place)->live.variance);
            assert_true(fabs(bytes - s / chance) <= 1 + s / chance * 1e-8);
            assert_true(fabs(found * SITE_GRAIN * SITE_GRAIN - variance) <=
                        (double)SITE_GRAIN * SITE_GRAIN + variance * 1e-6 + bytes);
            sites_count(sites, site_mark(place, rate), sizes[i], -1);
            assert_int_equal(stat_get(&site_at(place)->live.bytes), 0);
            assert_int_equal(stat_get(&site_at(place)->live.blocks), 0);
            assert_int_equal(stat_get(&site_at(place)->live.variance), 0);
        }
}

static void rate_0_is_exact(void **state)
{
    (void)state;
    uint32_t place = place_of(1);
    sites_count(sites, site_mark(place, 0), 1000, 1);
    sites_count(sites, site_mark(place, 0), 24, 1);
    assert_int_equal(stat_get(&site_at(place)->live.bytes), 1024);
    assert_int_equal(stat_get(&site_at(place)->live.blocks), 2 * SITE_PARTS);
    assert_int_equal(stat_get(&site_at(place)->live.variance), 0);
    assert_int_equal(site_exact(site_mark(place, 0)), place);
    assert_int_equal(site_exact(site_mark(place, 1)), 0);
    assert_int_equal(site_mark(0, 5), 0);
    assert_int_equal(site_place(site_mark(SITES, SITE_RATES)), SITES);
    assert_true(site_mark(SITES, SITE_RATES) <= UINT16_MAX);
}

/* Random requests and frees of sites against a copy made at each peak. */
static void the_peak_is_that_of_its_moment(void **state)
{
    enum { PLACES = 5, STEPS = 20000 };
    uint32_t place[PLACES];
    uint64_t live[PLACES] = {0}, at_peak[PLACES] = {0}, all = 0, peak = 0, unseen = 0;
    (void)state;
    srand(1);
    for (int i = 0; i < PLACES; i++) {
        place[i] = place_of((uint64_t)i + 1);
        site_at(place[i])->device = 3;
    }
    for (int step = 0; step < STEPS; step++) {
        int i = rand() % PLACES, up = rand() % 2;
        uint64_t bytes = 1 + (uint64_t)rand() % 1000;
        if (rand() % 3 == 0) { /* what no site counts */
            unseen = up ? unseen + bytes : unseen - (unseen < bytes ? unseen : bytes);
        } else if (up || live[i] >= bytes) {
            live[i] += up ? bytes : -bytes;
            uint64_t after = unseen, before = peak;
            for (int j = 0; j < PLACES; j++)
                after += live[j];
            if (!up || after <= before)
                sites_note_peak(sites, 3, before);
            sites_count(sites, site_mark(place[i], 0), bytes, up ? 1 : -1);
        }
        all = unseen;
        for (int j = 0; j < PLACES; j++)
            all += live[j];
        if (all > peak) {
            peak = all;
            memcpy(at_peak, live, sizeof live);
        }
        for (int j = 0; j < PLACES; j++)
            assert_int_equal(peak_bytes(place[j], peak), at_peak[j]);
    }
}

static void devices_have_peaks_of_their_own(void **state)
{
    (void)state;
    uint32_t one = place_of(1), other = place_of(2), none = place_of(3);
    site_at(one)->device = 0;
    site_at(other)->device = 1;
    site_at(none)->device = SITE_DEVICES;
    sites_count(sites, one, 100, 1);
    sites_count(sites, other, 200, 1);
    sites_count(sites, none, 300, 1);
    sites_note_peak(sites, 0, 100);
    sites_count(sites, one, 100, -1);
    sites_count(sites, other, 200, -1);
    assert_int_equal(peak_bytes(one, 100), 100);
    assert_int_equal(peak_bytes(other, 0), 0); /* no peak of its device was noted */
    assert_int_equal(peak_bytes(none, 0), 0);
}

static int setup_world(void **state)
{
    setup(state);
    cache_world_setup(state);
    domain_record(w.domain, NULL, sites);
    return 0;
}

/* Such a block is freed with the lock. It is then one of its thread's cache like any other. */
static void a_sampled_block_is_freed_with_the_lock(void **state)
{
    (void)state;
    uint32_t place = place_of(9);
    asked_by.left = INT64_MAX / 2;
    uint64_t address = 0, again, warm = cached(4096);
    assert_int_equal(allocator_hit_alone(w.a, 4096), warm);
    assert_true(domain_free_alone(warm)); /* this thread's frees need no lock */
    domain_asked_at(site_mark(place, 1));
    assert_int_equal(allocator_malloc(w.a, 4096, &address), 0);
    domain_asked_at(0);
    assert_true(stat_get(&site_at(place)->live.bytes) >= 2 * MIB);
    assert_false(domain_free_alone(address));
    assert_int_equal(domain_free(w.domain, address, FREED_NATIVE), 0);
    assert_int_equal(stat_get(&site_at(place)->live.bytes), 0);
    again = allocator_hit_alone(w.a, 4096);
    assert_int_equal(again, address);
    assert_true(w.domain->is_valid(w.a));
    assert_true(domain_free_alone(again));
    assert_true(w.domain->is_valid(w.a));
    assert_int_equal(stat_get(&site_at(place)->live.bytes), 0);
}

/* The thread's cache says so by serving nothing, and takes nothing off. */
static void a_request_that_is_to_be_looked_at_is_no_hit(void **state)
{
    (void)state;
    uint64_t block = cached(4096);
    asked_by.left = 4095;
    assert_int_equal(allocator_hit_alone(w.a, 4096), 0);
    assert_int_equal(asked_by.left, 4095);
    asked_by.left = 4096;
    assert_int_equal(allocator_hit_alone(w.a, 4096), block);
    assert_int_equal(asked_by.left, 0);
    asked_by.left = 8192;
    assert_int_equal(allocator_hit_alone(w.a, 8192), 0); /* a miss takes nothing off either */
    assert_int_equal(asked_by.left, 8192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sample_weighs_what_it_stands_for, setup, teardown),
        cmocka_unit_test_setup_teardown(rate_0_is_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(the_peak_is_that_of_its_moment, setup, teardown),
        cmocka_unit_test_setup_teardown(devices_have_peaks_of_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sampled_block_is_freed_with_the_lock, setup_world,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_request_that_is_to_be_looked_at_is_no_hit, setup_world,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
