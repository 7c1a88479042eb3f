/* Lanes: a freed block is reusable at once while all outstanding work is on one stream (R1).
 *
 * The rule is at the head of lane.c. Each submission of work passes lane_enter before the driver's
 * call and lane_leave after it, in the submitting thread. These two take no lock and call no
 * driver. The other functions may call the driver, and hold no lock while they do. */
#ifndef CACHALOT_ALLOCATOR_REUSE_LANE_H
#define CACHALOT_ALLOCATOR_REUSE_LANE_H

#include "allocator/state/lane_state.h"
#include "stats/os/direct.h"

struct allocator;
struct domain;
struct fence;

/* Returns the index of the note that a stream of this name would have. */
static inline unsigned lane_note(uint64_t name)
{
    return (uint32_t)name * UINT32_C(0x9e3779b1) >> (32 - LANE_NOTE_BITS);
}

/* Starts lanes: frees look at them from now on. Without this call, so with any free_mode but async,
 * there are none. `ops` must stay valid. */
void lane_start(struct domain *domain, const struct lane_ops *ops);

/* Names below `least` may stand for several streams of one thread from now on, so lane_enter never
 * knows them. */
void lane_names_from(struct domain *domain, uint64_t least);

/* Makes a record for the calling thread. Returns NULL without host memory: then its submissions
 * cannot be seen in flight, and no lane ever returns. lane_thread_end gives the record back. */
struct lane_thread *lane_thread_begin(struct domain *domain);
void lane_thread_end(struct domain *domain, struct lane_thread *self);

/* Registers a submission that lane_enter did not know. `self` may be NULL. Returns 0 if the stream
 * is capturing: that is no work. Else returns 1: the submission may use memory that earlier work of
 * its own stream still uses, so it must not overtake that work. */
int lane_submit(struct domain *domain, struct lane_thread *self, const struct lane_stream *stream);

/* Returns 1 if a submission to this stream is registered already, else 0: call lane_submit. Either
 * way lane_leave follows the driver's call. No memory fence is needed between the store and the
 * load: a thread that reads the epochs makes all threads pass a barrier first. */
static inline int lane_enter(struct lane_thread *self, uint64_t name)
{
    const struct lane_state *state = self->state;
    unsigned note = lane_note(name);
    uint64_t epoch = atomic_load_explicit(&state->epoch, memory_order_acquire), word;
    atomic_store_explicit(&self->epoch, epoch, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    word = atomic_load_explicit(&state->word, memory_order_acquire);
    return name >= atomic_load_explicit(&state->least_name, memory_order_relaxed) &&
           word == self->word[note] && name == self->name[note];
}

/* Ends a submission. Returns 0 if it was not visible in flight to its end: then call
 * lane_outrun. */
static inline int lane_leave(struct lane_thread *self)
{
    int seen = atomic_load_explicit(&self->epoch, memory_order_relaxed) != 0;
    atomic_store_explicit(&self->epoch, 0, memory_order_release);
    return seen;
}

/* A tool that the driver called back within a submission submitted too: ends the lane. */
void lane_outrun(struct domain *domain);

/* For work that waits until a value is written: call it between lane_submit and lane_leave. There
 * is no lane while such work may be outstanding. Otherwise the stream that is to write the value
 * could join a mark of that work. */
void lane_waits(struct domain *domain);

/* An object may be about to be loaded. From now on no free is reusable at once, until a look at the
 * objects (lane_ops) has found the process as it was. May be called anywhere: takes no lock.
 *
 * lane_work_is_past: work can reach the device without lane_submit. From now on no free is reusable
 * at once, and each waits for all work. */
void lane_watch(struct domain *domain);
void lane_work_is_past(struct domain *domain);

/* Brackets each stream capture of the process: call them before the driver begins it, and after it
 * has ended. */
void lane_capture_begins(struct domain *domain);
void lane_capture_ended(struct domain *domain);

/* Call it before the driver destroys a stream: from then on its key may become that of another
 * stream. */
void lane_stream_ends(struct domain *domain, uint64_t key);

/* close: lane_enter knows no stream until `open`, so each submission takes its caller's slow path.
 * is_empty: returns 1 when no submission is in flight that began before; it may be one that waits
 * in the slow path unless that has called lane_leave. Returns 0 if one is, and -1 if a submission
 * cannot be seen in flight. */
int lane_close(struct domain *domain);
int lane_is_empty(struct domain *domain);
void lane_open(struct domain *domain);

/* For the allocator. The caller holds the domain's lock, except for lane_finish. */

/* Returns 1 if a block freed now is reusable at once, and sets the bits that its mark needs. */
DIRECT int lane_free(struct allocator *allocator);

/* Is no work outstanding in any context (NONE)? */
int lane_is_idle(struct domain *domain);

/* During a capture there is no lane. Returns 1 if the work has finished that a lane's reuse
 * overtook, after a wait of at most `timeout_ns`. Drops the lock meanwhile. */
int lane_is_over(struct allocator *allocator, uint64_t timeout_ns);

/* A fence was sealed: its batch is closed, and its event is not recorded yet. lane_fence_ended:
 * that fence has passed, or (`passed` is 0) it will not. */
void lane_sealed(struct allocator *allocator, const struct fence *fence);
void lane_fence_ended(struct allocator *allocator, const struct fence *fence, int passed);

/* Forgets a context that ends. */
void lane_forget(struct allocator *allocator);

/* Waits on the host for the work that a lane's reuse has overtaken. Takes the lock itself. */
void lane_finish(struct domain *domain);

/* For the files of this room; the caller holds the lock. lane_settled: returns the word once no
 * thread records a mark, and the lane, if there is one, has its mark. lane_leave_for_good: leaves
 * the lane. Both drop the lock meanwhile. lane_spoil: discards the candidate and the streams
 * counted for it. */
uint64_t lane_settled(struct domain *domain);
void lane_leave_for_good(struct domain *domain);
void lane_spoil(struct lane *lane);

#endif
