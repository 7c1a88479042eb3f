/* A world with lanes whose threads have caches: this thread can be any of them. */
#ifndef CACHALOT_TEST_CACHE_WORLD_H
#define CACHALOT_TEST_CACHE_WORLD_H

#include "lane_world.h"

#include "allocator/thread_cache/thread_cache.h"

#define ROWS 4
extern struct cache_row rows[ROWS];
extern struct thread_cache *caches[ROWS];
extern struct device_stats now; /* as of the last look */

void cache_world_remake(const char *conf);
int cache_world_setup(void **state);
#define CACHE(test) cmocka_unit_test_setup(test, cache_world_setup)

void as(int i); /* this thread goes on as another one, which has cache `i` */

void look(void);
#define NOW(kind) stats_current_all(&now, STAT_##kind)

/* As the program's calls: alone, or with the lock. */
uint64_t get(uint64_t bytes);
void put(uint64_t address);

uint64_t cached(uint64_t bytes); /* a block that lies in this thread's cache */

#endif
