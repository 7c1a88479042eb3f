/* One allocator on a fake device, as most tests want it, and short names for what they ask. Every
 * operation is followed by a check that the allocator's books are true. */
#ifndef CACHALOT_TEST_WORLD_H
#define CACHALOT_TEST_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "allocator/allocator.h"
#include "allocator/check.h"
#include "allocator/reuse/lane.h"
#include "fake_device.h"

#define KIB ((uint64_t)1 << 10)
#define GIB ((uint64_t)1 << 30)

struct world {
    struct options options;
    struct fake_device device;
    struct device_stats stats;
    struct domain *domain;
    struct allocator *a;
};

/* Made anew for each test by world_setup (cmocka's); marks pass at once and memory is without end.
 */
extern struct world w;

/* The host's page in worlds made from here on; world_setup: a grain, so that blocks lie close. */
extern uint64_t world_page;
int world_setup(void **state);

/* A world with these options and this much device memory in place of that. */
void world_remake(const char *conf, uint64_t capacity);

/* A further allocator of the same domain, on its own device; NULL stats: the row of the first. */
struct allocator *world_add(struct fake_device *device, struct device_stats *stats);

uint64_t take(uint64_t bytes); /* the address; fails the test if there is none */
int try_take(uint64_t bytes);  /* the code of allocator_malloc */
int hit(uint64_t bytes, uint64_t *address);
void give(uint64_t address); /* and what marks passed at once is reusable at once */
int try_give(uint64_t address);
void pass_all(void); /* all marks recorded so far pass */

#define CURRENT(kind) stats_current_all(&w.stats, STAT_##kind)
#define CURRENT_IN(kind, pool) stats_current(&w.stats, STAT_##kind, pool)
#define PEAK(kind) ((uint64_t)w.stats.stat[STAT_##kind].peak[STAT_POOLS])
#define COUNTER(kind) stats_get(&w.stats, COUNTER_##kind)

#define RULE(test) cmocka_unit_test_setup(test, world_setup)

#endif
