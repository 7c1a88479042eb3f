/* Pinned host memory, served from a domain of its own (process.pinned). */
#ifndef CACHALOT_INTERPOSE_MEMORY_PINNED_H
#define CACHALOT_INTERPOSE_MEMORY_PINNED_H

#include <stddef.h>
#include <stdint.h>

#include "interpose/resolve/cuda_api.h"

/* Called when service begins, with the options known. */
void pinned_begin(void);

/* Gives idle memory back if the host is short of memory. Called now and then, by the service
 * thread. */
void pinned_look_at_host(void);

/* Puts memory with these flags of cuMemHostAlloc into *pointer and returns 1; 0: the driver is to
 * be asked. */
int pinned_alloc(void **pointer, size_t bytes, unsigned flags);

/* Returns 1 if the address is in memory of ours: then *result is the answer. *gone: the program does
 * not hold it any longer, whatever the answer. */
int pinned_free(void *pointer, CUresult *result, int *gone);

/* The context is about to end, or may be (suspended 1) and lives on (0). */
void pinned_context_ends(CUcontext handle);
void pinned_suspend(CUcontext handle, int suspended);

#endif
