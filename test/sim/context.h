/*
 * Devices' contexts and what a thread has current.
 */
#ifndef SIM_CONTEXT_H
#define SIM_CONTEXT_H

#include "stream.h"

#include <cuda.h>

#define SIM_CONTEXT_DEPTH 32

struct sim_context {
    int device, alive, primary, green, references;
    unsigned flags;
    unsigned long long id;
    struct sim_stream *streams; /* created, legacy and per-thread ones */
    struct sim_stream *legacy;
    struct sim_queue *marks;
    struct sim_memory *memories;
    struct sim_context *next;
};

struct sim_thread {
    struct sim_context *stack[SIM_CONTEXT_DEPTH];
    int depth, per_thread, registered, own_streams;
    CUstreamCaptureMode capture_mode;
};

struct sim_thread *thread_self(void);
/* The current context, or NULL with the reason. */
struct sim_context *context_current(CUresult *why);
struct sim_context *context_primary(int device);
/* All there have been, dead ones too. */
struct sim_context *context_first(void);
struct sim_context *context_from(CUcontext handle);
/* The whole context's work so far. */
struct sim_point context_mark(struct sim_context *context, struct sim_event *event);
void context_wait(struct sim_context *context);
int device_is_valid(int device);

#endif
