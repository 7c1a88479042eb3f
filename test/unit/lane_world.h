/* A world with lanes, three streams whose driver is bookkeeping, and short names for what is asked
 * of them. The device passes marks only when told to. */
#ifndef CACHALOT_TEST_LANE_WORLD_H
#define CACHALOT_TEST_LANE_WORLD_H

#include "world.h"

#include "allocator/state/domain.h"

enum { L = 16, K = 32, M = 48 }; /* streams */
#define HERE ((uint64_t)(uintptr_t)&w.device)

extern struct lane_thread *self;
extern uint64_t joins, barriers, joined_mark; /* joined_mark: the fake device's number */
extern uint64_t contexts[M + 1];              /* of each stream */
extern int capturing[M + 1];

void lane_world_remake(const char *conf);
int lane_world_setup(void **state);

/* A submission under way: -1 seen at a glance, 0 no work, 1 put on the books anew. */
int enter(struct lane_thread *thread, uint64_t key);
int submit(uint64_t key); /* and done */

int mode(void);
uint64_t marks(void);

/* Is the block freed the next one handed out? */
void assert_reused_at_once(void);
void assert_not_reused(void);

void pass_candidate(void); /* frees until a candidate has been made and has passed */

#define LANE(test) cmocka_unit_test_setup(test, lane_world_setup)

#endif
