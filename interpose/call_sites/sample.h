/* Which requests have their call site looked at: one in N, or a sample by bytes (sites.h). */
#ifndef CACHALOT_INTERPOSE_CALL_SITES_SAMPLE_H
#define CACHALOT_INTERPOSE_CALL_SITES_SAMPLE_H

#include "interpose/process/process.h"

/* Takes the calling thread's request of `bytes` bytes off. Returns 1 if its site is to be looked at,
 * at *rate; then sample_taken must follow, which draws the distance to the next one. */
int sample_takes(uint64_t bytes, unsigned *rate);

/* A look has begun at `begun` (of sample_clock) and is over. */
void sample_taken(uint64_t begun);

/* Ticks; 0 in a process that may not read them. */
uint64_t sample_clock(void);

#endif
