/* A clock that costs next to nothing: the processor's own counter, the same on all of them. What a
 * tick is in ns follows from two readings beside CLOCK_MONOTONIC. One file per processor. */
#ifndef CACHALOT_STATS_OS_TICKS_H
#define CACHALOT_STATS_OS_TICKS_H

#include <stdint.h>

uint64_t ticks_now(void);

/* Does reading it not kill the process? */
int ticks_are_readable(void);

#endif
