/* Submissions: every call that carries work to a stream passes here, before and after the driver's
 * own function. What is done with them: allocator/reuse/lane.h. */
#ifndef CACHALOT_INTERPOSE_STREAM_SUBMIT_H
#define CACHALOT_INTERPOSE_STREAM_SUBMIT_H

#include "allocator/reuse/lane.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "stats/page/page.h"

void submit_start(void); /* when serving begins */
void submit_thread_ends(void);

/* After the driver made or found a context: the default streams of several are told apart. */
void submit_context_made(CUcontext context);

/* Before the driver destroys a stream. */
void submit_stream_ends(CUstream stream);

/* The calling thread's share. In a forked child nothing is served, and what submit_seen looks at is a
 * copy whose word is on no books. */
struct submitter {
    struct lane_thread *alone; /* `lane`, if the row is this thread's alone: the short way */
    stat_value *submissions;   /* its row in the page */
    struct lane_thread *lane;
    unsigned row; /* 0: shared with others, or without a lane */
    int begun_in; /* a life: the child of a bare clone has its parent's */
};
extern _Thread_local struct submitter submitter;

/* The stream's name in this thread, as long as there is but one context. */
static inline uint64_t submit_name(CUstream stream, int per_thread)
{
    return (uint64_t)(uintptr_t)(per_thread && !stream ? CU_STREAM_PER_THREAD : stream);
}

/* The short way of submit_begin: is it on the books already? Then it is counted.
 *
 * Serving need not be asked: who is `alone` was served, in a forked child nothing is on the books,
 * and after our end what is done here harms nobody. */
static inline __attribute__((always_inline)) struct lane_thread *
submit_seen(enum submission_kind kind, CUstream stream, int per_thread)
{
    struct lane_thread *self = submitter.alone;
    if (!self || !lane_enter(self, submit_name(stream, per_thread)))
        return NULL;
    stat_increase(&submitter.submissions[kind], 1);
    return self;
}

/* The long way, and of submit_end what is rare. */
__attribute__((cold)) int submit_put(enum submission_kind kind, CUstream stream, int per_thread);
void submit_to_host(CUstream stream, int per_thread);

__attribute__((cold)) CUresult submit_outrun(CUresult result); /* returns it */

/* After submit_begin of work that waits until somebody writes a value. */
void submit_waits(void);

/* Before the driver's call: puts the work on the books of its lane, joining where it must.
 * `per_thread`: the function's 0 is the per-thread default stream. Returns 1 if this work must not
 * overtake what its stream had before, whatever its launch permits: until submit_was_in_order,
 * since what is submitted may come to nothing (it fails, or is empty). From here on `real_table` is
 * filled as well as it can be. */
static inline __attribute__((always_inline)) int submit_begin(enum submission_kind kind,
                                                              CUstream stream, int per_thread)
{
    const struct lane_thread *self = submit_seen(kind, stream, per_thread);
    if (__builtin_expect(!self, 0))
        return submit_put(kind, stream, per_thread);
    return self->in_order[lane_note(submit_name(stream, per_thread))];
}

/* A launch that was told so is on its stream. */
void submit_was_in_order(CUstream stream, int per_thread);

/* After the driver's call. `to_host`: the work writes memory that the host may look at, or runs on
 * the host: a later free waits for it, as natively. */
static inline void submit_end(CUresult result, CUstream stream, int per_thread, int to_host)
{
    if (__builtin_expect(submitter.lane && !lane_leave(submitter.lane), 0))
        submit_outrun(result);
    if (to_host && result == CUDA_SUCCESS)
        submit_to_host(stream, per_thread);
}

/* The same where submit_seen was 1, for work that the host does not look at. */
static inline CUresult submit_seen_end(struct lane_thread *self, CUresult result)
{
    return __builtin_expect(lane_leave(self), 1) ? result : submit_outrun(result);
}

#endif
