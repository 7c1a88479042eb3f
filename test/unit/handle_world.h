/* A world with mapped memory in handles of several chunks. */
#ifndef CACHALOT_TEST_HANDLE_WORLD_H
#define CACHALOT_TEST_HANDLE_WORLD_H

#include "world.h"

#include "allocator/state/domain.h"

#define CHUNK (2 * MIB)
#define HANDLE (16 * MIB)
#define BLOCK (3072 * MIB) /* where it is the first, the least that has such handles */
#define HANDLES (BLOCK / HANDLE)

#define CALLS(kind) (w.device.calls[FAKE_##kind])

extern uint64_t low, between, high, second; /* second: bytes of `high` */

/* Of a program whose sizes come again: its blocks share handles. No call of the device is counted yet;
 * setup: on one of 64 GiB. alone: of a program whose sizes do not, so that they share none. */
void handle_world_remake(const char *conf, uint64_t capacity);
int handle_world_setup(void **state);
int handle_world_alone(void **state);

/* Three blocks side by side, and the outer ones, BLOCK and `second` bytes, are given back. */
void make_room(void);

/* The context ends when it calls the device so next. */
void end_context_at(enum fake_call call);

/* Nothing lives any more: all goes back, and nothing is left. */
void assert_all_goes_back(void);

#endif
