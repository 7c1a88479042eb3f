/* The processor's cycle counter as a clock: a few instructions, in step on all cores. Two readings
 * beside CLOCK_MONOTONIC give the length of a tick in ns. One source file per architecture. */
#ifndef CACHALOT_STATS_OS_TICKS_H
#define CACHALOT_STATS_OS_TICKS_H

#include <stdint.h>

uint64_t ticks_now(void);

/* Whether the counter may be read. A process can forbid itself that: a reading would kill it. */
int ticks_are_readable(void);

#endif
