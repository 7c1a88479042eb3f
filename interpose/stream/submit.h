/* Submissions: every call that carries work to a stream passes here, before and after the driver's
 * own function. allocator/reuse/lane.h says how they decide reuse. */
#ifndef CACHALOT_INTERPOSE_STREAM_SUBMIT_H
#define CACHALOT_INTERPOSE_STREAM_SUBMIT_H

#include "allocator/reuse/lane.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "stats/page/page.h"

void submit_start(void); /* when service begins */

/* Ends lanes, and says so, if an object of the process can submit work past us. */
void submit_look_around(void);

/* Only says so. Returns 1 if there is such an object. */
int submit_say_unseen(void);

void submit_thread_ends(void);

/* The driver has made or found a context. With several contexts their default streams get different
 * names. */
void submit_context_made(CUcontext context);

/* Called before the driver destroys a stream. */
void submit_stream_ends(CUstream stream);

/* The calling thread's share. A forked child is not served; its `alone` is a copy whose word
 * belongs to no lane. */
struct submitter {
    struct lane_thread *alone; /* `lane`, if the row is this thread's alone: the fast path */
    stat_value *submissions;   /* its row in the page */
    struct lane_thread *lane;
    unsigned row; /* 0: shared with other threads, or there is no lane */
    int begun_in; /* life in which it began: the child of a bare clone has its parent's */
};
extern _Thread_local struct submitter submitter;

/* The name of the stream in this thread, while there is one context. */
static inline uint64_t submit_name(CUstream stream, int per_thread)
{
    return (uint64_t)(uintptr_t)(per_thread && !stream ? CU_STREAM_PER_THREAD : stream);
}

/* The fast path of submit_begin: counts the submission if the stream is the thread's lane already,
 * else returns NULL.
 *
 * It does not ask whether the process is served: a thread with `alone` was; in a forked child no
 * lane matches; after the end of service the counts harm nothing. */
static inline __attribute__((always_inline)) struct lane_thread *
submit_seen(enum submission_kind kind, CUstream stream, int per_thread)
{
    struct lane_thread *self = submitter.alone;
    if (!self || !lane_enter(self, submit_name(stream, per_thread)))
        return NULL;
    stat_increase(&submitter.submissions[kind], 1);
    return self;
}

/* The slow path of submit_begin, and the rare part of submit_end. */
__attribute__((cold)) int submit_put(enum submission_kind kind, CUstream stream, int per_thread);
void submit_to_host(CUstream stream, int per_thread);

__attribute__((cold)) CUresult submit_outrun(CUresult result); /* returns `result` */

/* After submit_begin of work that waits until a value is written. */
void submit_waits(void);

/* Before the driver's call: notes the submission in its lane, joining lanes where it must.
 * `per_thread`: stream 0 of the function is the per-thread default stream. Returns 1 if this work
 * must not overtake earlier work of its stream, whatever its launch permits. That holds until
 * submit_was_in_order, since a submission may come to nothing (it fails, or is empty). Fills
 * `real_table` as far as possible. */
static inline __attribute__((always_inline)) int submit_begin(enum submission_kind kind,
                                                              CUstream stream, int per_thread)
{
    const struct lane_thread *self = submit_seen(kind, stream, per_thread);
    if (__builtin_expect(!self, 0))
        return submit_put(kind, stream, per_thread);
    return self->in_order[lane_note(submit_name(stream, per_thread))];
}

/* Is the calling thread between submit_begin and submit_end? */
static inline int submit_is_in_flight(void)
{
    return submitter.lane && atomic_load(&submitter.lane->epoch);
}

/* A launch that had to be in order was submitted. */
void submit_was_in_order(CUstream stream, int per_thread);

/* After the driver's call. `to_host`: the work runs on the host or writes memory that the host may
 * read, so a later free waits for it, as natively. */
static inline void submit_end(CUresult result, CUstream stream, int per_thread, int to_host)
{
    if (__builtin_expect(submitter.lane && !lane_leave(submitter.lane), 0))
        submit_outrun(result);
    if (to_host && result == CUDA_SUCCESS)
        submit_to_host(stream, per_thread);
}

/* The same after submit_seen, for work without effects on the host. */
static inline CUresult submit_seen_end(struct lane_thread *self, CUresult result)
{
    return __builtin_expect(lane_leave(self), 1) ? result : submit_outrun(result);
}

#endif
