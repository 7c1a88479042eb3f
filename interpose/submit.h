/* Submissions: every call that carries work to a stream passes here, before and after the driver's
 * own function. What is done with them: allocator/lane.h. */
#ifndef CACHALOT_INTERPOSE_SUBMIT_H
#define CACHALOT_INTERPOSE_SUBMIT_H

#include "interpose/process.h"
#include "interpose/real.h"
#include "stats/page.h"

void submit_start(void); /* when serving begins */
void submit_thread_ends(void);

/* After the driver made or found a context: the default streams of several are told apart. */
void submit_context_made(CUcontext context);

/* Before the driver destroys a stream. */
void submit_stream_ends(CUstream stream);

/* The current context; NULL as long as there is but one, since then it need not be told apart. */
static inline CUcontext submit_distinct_context(void)
{
    CUcontext context = NULL;
    if (atomic_load_explicit(&process->several_contexts, memory_order_relaxed))
        real()->cuCtxGetCurrent(&context);
    return context;
}

/* A name for the stream: no other has it, as long as this one lives. Handles are even. */
uint64_t submit_thread_key(void);
static inline uint64_t submit_key(CUstream stream, int per_thread)
{
    if ((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD)
        return (uint64_t)(uintptr_t)stream;
    if (stream == CU_STREAM_PER_THREAD || (per_thread && !stream))
        return submit_thread_key();
    return (uint64_t)(uintptr_t)submit_distinct_context() | 1;
}

/* The calling thread's share. In a forked child it is never looked at, since nothing is served. */
struct submitter {
    struct lane_thread *lane;
    stat_value *submissions; /* its row in the page; NULL: not begun */
    unsigned row;            /* 0: shared with others, or without a lane: the long way */
};
extern _Thread_local struct submitter submitter;

/* The long ways of the two below. */
int submit_put(enum submission_kind kind, CUstream stream, int per_thread);
void submit_to_host(CUstream stream, int per_thread);

/* After submit_begin of work that waits until somebody writes a value. */
void submit_waits(void);

/* Before the driver's call: puts the work on the books of its lane, joining where it must.
 * `per_thread`: the function's 0 is the per-thread default stream. Returns 1 if this work must not
 * overtake what its stream had before, whatever its launch permits: until submit_was_in_order,
 * since what is submitted may come to nothing (it fails, or is empty). */
static inline __attribute__((always_inline)) int submit_begin(enum submission_kind kind,
                                                              CUstream stream, int per_thread)
{
    if (!process_serving())
        return 0;
    const struct lane_note *note = NULL;
    if (submitter.row)
        note = lane_enter(process->lanes, submitter.lane, submit_key(stream, per_thread));
    if (!note)
        return submit_put(kind, stream, per_thread);
    stat_increase(&submitter.submissions[kind], 1);
    return note->in_order;
}

/* A launch that was told so is on its stream. */
void submit_was_in_order(CUstream stream, int per_thread);

/* After the driver's call. `to_host`: the work writes memory that the host may look at, or runs on
 * the host: a later free waits for it, as natively. */
static inline void submit_end(CUresult result, CUstream stream, int per_thread, int to_host)
{
    if (submitter.lane)
        lane_leave(submitter.lane);
    if (to_host && result == CUDA_SUCCESS)
        submit_to_host(stream, per_thread);
}

#endif
