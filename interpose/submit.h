/* Submissions: every call that carries work to a stream passes here, before and after the driver's
 * own function. What is done with them: allocator/lane.h. */
#ifndef CACHALOT_INTERPOSE_SUBMIT_H
#define CACHALOT_INTERPOSE_SUBMIT_H

#include "interpose/retry.h"
#include "stats/page.h"

void submit_start(void); /* when serving begins */
void submit_thread_ends(void);

/* After the driver made or found a context: the default streams of several are told apart. */
void submit_context_made(CUcontext context);

/* Before the driver destroys a stream. */
void submit_stream_ends(CUstream stream);

/* A name for the stream: no other has it, as long as this one lives. */
uint64_t submit_key(CUstream stream, int per_thread);

/* Before the driver's call: puts the work on the books of its lane, joining where it must.
 * `per_thread`: the function's 0 is the per-thread default stream. Returns 1 if this work must not
 * overtake what its stream had before, whatever its launch permits. */
int submit_begin(enum submission_kind kind, CUstream stream, int per_thread);

/* After the driver's call. `to_host`: the work writes memory that the host may look at, or runs on
 * the host: a later free waits for it, as natively. */
void submit_end(CUresult result, CUstream stream, int per_thread, int to_host);

/* The exported function `name`. `stream` and `to_host` are expressions of its parameters; to_host
 * is evaluated after the call. */
#define SUBMIT_TO_HOST(kind, name, per_thread, stream, to_host, parameters, arguments)             \
    CUresult name parameters                                                                       \
    {                                                                                              \
        CUresult result;                                                                           \
        int tries = 0;                                                                             \
        submit_begin(SUBMISSION_##kind, stream, per_thread);                                       \
        RETRIED(result, real()->name arguments);                                                   \
        submit_end(result, stream, per_thread, to_host);                                           \
        return result;                                                                             \
    }
#define SUBMIT(kind, name, per_thread, stream, parameters, arguments)                              \
    SUBMIT_TO_HOST(kind, name, per_thread, stream, 0, parameters, arguments)

/* The function and its twin, where `stream` is a parameter. */
#define SUBMIT_TWINS_TO_HOST(kind, name, to_host, parameters, arguments)                           \
    SUBMIT_TO_HOST(kind, name, 0, stream, to_host, parameters, arguments)                          \
    SUBMIT_TO_HOST(kind, name##_ptsz, 1, stream, to_host, parameters, arguments)
#define SUBMIT_TWINS(kind, name, parameters, arguments)                                            \
    SUBMIT_TWINS_TO_HOST(kind, name, 0, parameters, arguments)

/* The function and its twin without a stream: the default stream, which the call waits for where
 * the host might see what it did. */
#define SUBMIT_DEFAULT(kind, name, parameters, arguments)                                          \
    SUBMIT(kind, name, 0, NULL, parameters, arguments)                                             \
    SUBMIT(kind, name##_ptds, 1, NULL, parameters, arguments)

#endif
