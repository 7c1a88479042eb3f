/* Waits until all work of the process on the device has finished. */
#ifndef CACHALOT_INTERPOSE_SLEEP_SETTLE_H
#define CACHALOT_INTERPOSE_SLEEP_SETTLE_H

#include <stdint.h>

#include "interpose/resolve/cuda_api.h"

/* The program has made or found a context, or one has ended. */
void settle_context_made(CUcontext context);
void settle_context_ended(CUcontext context);

/* The gate is closed, and no submission is in flight. Returns NULL when all work submitted before has
 * finished, or why it has not until `until_ns` (CLOCK_MONOTONIC). */
const char *settle_all(uint64_t until_ns);

#endif
