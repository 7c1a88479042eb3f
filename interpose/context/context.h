/* Contexts: each has an allocator from its first request to its end.
 *
 * Locks: contexts.lock protects the slots. Under it captures and an allocator may be locked, and
 * the driver is not called. primary_lock[device] is taken before it, see context_change_begin. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_CONTEXT_H
#define CACHALOT_INTERPOSE_CONTEXT_CONTEXT_H

#include <pthread.h>

#include "interpose/context/current.h"
#include "interpose/context/virtual_memory.h"
#include "interpose/process/process.h"
#include "interpose/resolve/cuda_api.h"

#define MOST_CONTEXTS 256

/* The handle of a slot whose context is being made: no context has it. */
#define CONTEXT_UNMADE ((CUcontext)1)

struct context {
    _Atomic(CUcontext) handle; /* NULL: slot free */
    CUdevice device;
    int primary;
    _Atomic int suspended;        /* its release or end is under way: nothing is served */
    uint64_t ender, last_capture; /* thread in the call that ends it; last capture before */
    struct allocator *allocator;
    struct page_device *row;
    _Atomic(CUstream) own; /* device_ops.c: on which no work of the program runs; NULL: not made */
    _Atomic uint64_t in_segments, in_chunks; /* bytes in the books of the group */
};

/* The fields that every request reads come first: with the first slots they share one page. */
struct WIPED contexts {
    _Atomic uint64_t generation; /* changes when a context ends, and when there is a second one */
    _Atomic int several, unnoted_work; /* several: there were two */
    _Atomic uintptr_t first;
    struct context slot[MOST_CONTEXTS];
    pthread_mutex_t lock, primary_lock[PEER_DEVICES]; /* primary: of changes */
    CUcontext found[MOST_CONTEXTS];                   /* that live, served or not */
    _Atomic uint64_t finds, noted; /* finds: so far; noted: as many of them have a slot */
    _Atomic int unlisted;          /* there were too many */
};
extern struct contexts contexts __attribute__((visibility("hidden")));

/* Called when service begins. */
void context_start(void);

/* The driver has made or found a context. Returns 1 if it is not the first. */
int context_found(CUcontext handle);

/* Makes an allocator for each context in which work may run, also where nothing was requested.
 * Returns 0 if one of them has none: for now, or for good. */
int context_note_all(void);

/* Work that the host may see was submitted in a context that has no allocator yet. All allocators
 * made later assume that such work runs in their context. */
void context_expect_host_work(void);

/* The current context's slot, by asking the driver. */
struct context *context_ask(void);

/* The slot of the current context, made at its first request. NULL: no context is current, or it
 * must be left to the driver. */
static inline struct context *context_current(void)
{
    uint64_t generation = atomic_load_explicit(&contexts.generation, memory_order_acquire);
    struct context *context =
        context_note.generation == generation ? context_note.context : context_ask();
    return context && !atomic_load_explicit(&context->suspended, memory_order_relaxed) ? context
                                                                                       : NULL;
}

/* The slot of this handle, also while a release that may not be the last is under way. NULL also if
 * nothing was ever requested in it. */
struct context *context_noted(CUcontext handle);

/* Never serves this green context: its events cover only its own work, but its memory can be
 * reached from the primary context that it belongs to. */
void context_refuse(CUcontext handle);

/* The end of a context, by any call. empty: while the context certainly lives, gives its idle
 * memory to others. close: before the driver is told; nothing of the context is served until it is
 * forgotten, since a thread in which it is still current would make a new allocator. forget: by the
 * thread that closed it, after the driver has ended it; returns the allocator for allocator_bury,
 * or NULL. */
void context_empty(CUcontext handle);
void context_close(CUcontext handle);
struct allocator *context_forget(CUcontext handle);

/* The driver has refused to end the context: a slot made by context_close is free again. */
void context_end_refused(CUcontext handle);

/* The context may be ending (suspended 1): nothing of it is served, and other contexts do not take
 * its idle memory. Returns the value before. */
int context_suspend(CUcontext handle, int suspended);

int context_is_primary(CUcontext handle);

/* The context of this stream, for the calling thread. NULL: there is none, or the driver does not
 * say. */
CUcontext context_of_stream(CUstream stream);

/* Primary contexts of a device: a reset ends them; a release does if it was the last. A change is a
 * call that retains, releases or resets one. Changes of a device exclude each other: otherwise
 * another thread could make the next primary context, which has the same handle, between the
 * driver's release and our question whether it was the last. Changes nest: the driver may call a
 * tool's function back. context_primary returns NULL if the device's primary context is not served
 * and nothing is being captured. */
void context_change_begin(CUdevice device);
void context_change_end(CUdevice device);
CUcontext context_primary(CUdevice device);
CUcontext context_primary_unnoted(CUdevice device); /* by asking the driver; NULL: not active */
int context_primary_is_active(CUdevice device);     /* negative: the driver does not say */

#endif
