/* The calling thread's current context: the thread's note of it, and the calls that change it. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_CURRENT_H
#define CACHALOT_INTERPOSE_CONTEXT_CURRENT_H

#include <stdint.h>

#include "interpose/resolve/cuda_api.h"

struct context;

/* The driver's last answer. It holds in a process with one context until this thread switches
 * contexts (generation 0 then) or contexts.generation changes. */
struct context_note {
    uint64_t generation;
    struct context *context;
    void *handle; /* of the slot, as it was then */
};
extern _Thread_local struct context_note context_note;

/* Has this thread's cudart made its context current since the last switch or cudaSetDevice? Before
 * that the current context may be another device's (cudart <= 11 binds lazily) or none, and the
 * thread's next call must enter cudart. */
extern _Thread_local int context_bound;

/* How many switches this thread is in: while there is one, nothing is noted. */
extern _Thread_local int context_switches;

/* Around a driver function that may change this thread's current context. They nest: the driver may
 * call a tool's function back, which may ask and switch too. */
void context_switch_begin(void);
void context_switch_end(void);

/* Makes a context current for our own calls, and restores the thread's. A note that a tool's
 * function takes in between is dropped when it becomes wrong. */
CUresult context_push(CUcontext handle);
void context_pop(void);

#endif
