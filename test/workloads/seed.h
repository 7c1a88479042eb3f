/* What the published experiments (seeds) share: an unmodified program of the CUDA runtime that can
 * be stopped at points, so that someone outside looks at the figures there. */
#ifndef CACHALOT_TEST_WORKLOADS_SEED_H
#define CACHALOT_TEST_WORKLOADS_SEED_H

#include <stddef.h>
#include <stdint.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* cudaMalloc and a little work on the memory; ends the program when there is none. */
void *take(size_t bytes);

/* The same, but NULL when the device is out of memory. */
void *try_take(size_t bytes);

/* cudaFree, once the device is done: the block is reusable at the next request. */
void give(void *memory);

/* Prints `point NAME` and waits for a line on stdin. At its end (`</dev/null`) nobody waits. */
void point(const char *name);

#endif
