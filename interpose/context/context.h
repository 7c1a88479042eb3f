/* Contexts: each has an allocator from its first request to its end. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_CONTEXT_H
#define CACHALOT_INTERPOSE_CONTEXT_CONTEXT_H

#include <pthread.h>

#include "interpose/context/virtual_memory.h"
#include "interpose/process/process.h"
#include "interpose/resolve/cuda_api.h"

#define MOST_CONTEXTS 256

struct context {
    CUcontext handle; /* NULL: slot free */
    CUdevice device;
    int primary;
    _Atomic int suspended;        /* its release is under way, or its end: serve nothing */
    uint64_t ender, last_capture; /* thread in the driver's call that ends it; before that */
    struct allocator *allocator;
    struct page_device *row;
};

/* What all threads look at comes first: with the first contexts it is one page. */
struct WIPED contexts {
    _Atomic uint64_t generation; /* changes when a context ends, and with the second context */
    _Atomic int several, unnoted_work; /* there were two; see context_expect_host_work */
    _Atomic uintptr_t first;
    struct context slot[MOST_CONTEXTS];
    pthread_mutex_t lock, primary_lock[PEER_DEVICES]; /* of the slots; see context_change_begin */
};
extern struct contexts contexts __attribute__((visibility("hidden")));

/* What the driver said last, for as long as it holds: with one context in the process, until this
 * thread switches (generation 0 then) or the generation of all changes. */
struct context_note {
    uint64_t generation;
    struct context *context;
};
extern _Thread_local struct context_note context_note;

/* When serving begins. */
void context_start(void);

/* The driver has made or found a context. Returns 1 if it is another one than the first. */
int context_found(CUcontext handle);

/* Work that the host may see was submitted in a context that has no allocator: the allocators of all
 * contexts to come count it as theirs. */
void context_expect_host_work(void);

/* As the driver says. */
struct context *context_ask(void);

/* The current context's, made at its first use; NULL: none is current, or it must be left to the
 * driver. */
static inline struct context *context_current(void)
{
    uint64_t generation = atomic_load_explicit(&contexts.generation, memory_order_acquire);
    struct context *context =
        context_note.generation == generation ? context_note.context : context_ask();
    return context && !atomic_load_explicit(&context->suspended, memory_order_relaxed) ? context
                                                                                       : NULL;
}

/* Has this thread's cudart made its context current, since it switched or called cudaSetDevice?
 * Until then the current one may be another device's (cudart <= 11 binds lazily) or none, and the
 * thread's first call must make it. */
extern _Thread_local int context_bound;

/* Around the driver's functions that may make another context this thread's current one. They nest:
 * a tool's function, which the driver calls back, may ask and switch within. */
void context_switch_begin(void);
void context_switch_end(void);

/* Makes a context current for calls of our own, and the thread's current again. What a tool's
 * function learns within is noted no longer than it is true. */
CUresult context_push(CUcontext handle);
void context_pop(void);

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

/* It may be ending: nothing of it is served, and nobody visits it for others. Returns what it
 * was. */
int context_suspend(CUcontext handle, int suspended);

int context_is_primary(CUcontext handle);

/* Whose stream this is for the calling thread; NULL: none's, or the driver does not say. */
CUcontext context_of_stream(CUstream stream);

/* Primary contexts of a device: a reset ends them; a release only if it was the last. A change is
 * whatever retains, releases or resets one: no other thread's comes between the driver's release
 * and our look whether it was the last, since the next one has the same handle. They nest: the
 * driver may call a tool's function within each. primary: NULL if it is not served and nothing is
 * captured. */
void context_change_begin(CUdevice device);
void context_change_end(CUdevice device);
CUcontext context_primary(CUdevice device);
int context_primary_is_active(CUdevice device); /* negative: the driver does not say */

#endif
