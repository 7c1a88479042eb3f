/* Writing memory before the program gets it (option fill). */
#ifndef CACHALOT_INTERPOSE_MEMORY_FILL_H
#define CACHALOT_INTERPOSE_MEMORY_FILL_H

#include <stdint.h>

#include "interpose/context/context.h"

/* Fills a block that no work uses, and waits until the device has done it: so the fill comes before
 * any use on any stream. Returns 0 if that failed, or lasts longer than FILL_WAIT_NS: then the
 * block goes back, since the fill may be yet to come. Else 1: it is filled, or is not to be. */
int fill_block(struct context *context, uint64_t address, uint64_t bytes);

/* Fills memory that the stream has allocated, in that stream. */
void fill_in_stream(CUdeviceptr pointer, uint64_t bytes, CUstream stream, int per_thread);

/* Fills memory of the host. */
void fill_host(void *pointer, uint64_t bytes);

#endif
