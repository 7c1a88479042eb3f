/* Contexts: each has an allocator from its first request to its end. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_H
#define CACHALOT_INTERPOSE_CONTEXT_H

#include "interpose/process.h"

/* The current context's, made at its first use; NULL: none is current, or it must be left to the
 * driver. */
struct context *context_current(void);

/* The context of this handle; NULL also if nothing was ever asked for in it. */
struct context *context_with(CUcontext handle);

/* Never serve this context: an event of a green context covers only its own work, but its memory is
 * reachable from the primary context it belongs to. */
void context_refuse(CUcontext handle);

/* The context is going, by whatever call: drop its blocks. */
void context_forget(CUcontext handle);

int context_is_primary(CUcontext handle);

/* Primary contexts of a device: a reset ends them; a release only if it was the last. */
void context_forget_primary(CUdevice device);
void context_suspend_primary(CUdevice device, int suspended);
int context_primary_is_active(CUdevice device);

#endif
