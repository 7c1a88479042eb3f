/* Contexts: each has an allocator from its first request to its end. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_H
#define CACHALOT_INTERPOSE_CONTEXT_H

#include "interpose/process.h"

/* The current context's, made at its first use; NULL: none is current, or it must be left to the
 * driver, who is asked which it is: not again with one context in the process, while this thread has
 * not switched. */
struct context *context_current(void);

/* Around the driver's functions that may make another context this thread's current one. They nest:
 * a tool's function, which the driver calls back, may ask and switch within. */
void context_switch_begin(void);
void context_switch_end(void);

/* The same for a thread whose cudart has bound itself: with one context in the process, a primary
 * one, there is no other that its calls could mean, and the driver need not be asked. */
static inline struct context *context_bound(void)
{
    struct context *sole = atomic_load_explicit(&process->sole, memory_order_acquire);
    if (!sole || atomic_load_explicit(&process->several_contexts, memory_order_relaxed) ||
        atomic_load_explicit(&sole->suspended, memory_order_relaxed))
        return context_current();
    return sole;
}

/* The context of this handle, also while a release of it is under way, which may not be the last;
 * NULL also if nothing was ever asked for in it. */
struct context *context_noted(CUcontext handle);

/* Never serve this context: an event of a green context covers only its own work, but its memory is
 * reachable from the primary context it belongs to. */
void context_refuse(CUcontext handle);

/* The context is going, by whatever call: drops its blocks. empty: while it is certainly alive,
 * leaves what is idle to others. close: before the driver is told. Nothing of it is served until it
 * is forgotten, else a thread that still has it current would make its allocator anew. forget, by
 * the thread that closed it: returns what is to be buried (allocator_bury) when the driver has ended
 * it, or NULL. */
void context_empty(CUcontext handle);
void context_close(CUcontext handle);
struct allocator *context_forget(CUcontext handle);

/* The driver refused to end it: what had no slot before has none again. */
void context_end_refused(CUcontext handle);

/* It may be ending: nothing of it is served, and nobody visits it for others. Returns what it was. */
int context_suspend(CUcontext handle, int suspended);

int context_is_primary(CUcontext handle);

/* Whose stream this is for the calling thread; NULL: none's, or the driver does not say. */
CUcontext context_of_stream(CUstream stream);

/* Primary contexts of a device: a reset ends them; a release only if it was the last. A change is
 * whatever retains, releases or resets one: no other thread's comes between the driver's release
 * and our look whether it was the last, since the next one has the same handle. They nest: the
 * driver may call a tool's function within each. primary: NULL if it is not served and nothing is
 * captured. forget_ended: as close and forget, if the driver has ended the primary one, whose
 * handle was this. */
void context_change_begin(CUdevice device);
void context_change_end(CUdevice device);
CUcontext context_primary(CUdevice device);
struct allocator *context_forget_ended(CUdevice device, CUcontext handle);
int context_primary_is_active(CUdevice device); /* negative: the driver does not say */

#endif
