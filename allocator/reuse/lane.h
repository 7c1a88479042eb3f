/* Lanes: a freed block is reusable at once while all outstanding work is on one stream (R1).
 *
 * The rule is at the head of lane.c. Every submission of work passes lane_enter before the driver's
 * call and lane_leave after it, in the thread that makes it. All functions but these two may call
 * the driver, and hold no lock while they do. */
#ifndef CACHALOT_ALLOCATOR_REUSE_LANE_H
#define CACHALOT_ALLOCATOR_REUSE_LANE_H

#include "allocator/state/lane_state.h"

struct allocator;
struct domain;
struct fence;

/* Which note is that of a stream, if there is one. */
static inline unsigned lane_note(uint64_t name)
{
    return (uint32_t)name * UINT32_C(0x9e3779b1) >> (32 - LANE_NOTE_BITS);
}

/* From now on frees look at lanes. Before it, and with free_mode other than async, they never do.
 */
void lane_start(struct domain *domain, const struct lane_ops *ops);

/* From now on names below `least` may be several streams of one thread. */
void lane_names_from(struct domain *domain, uint64_t least);

/* A record for the calling thread; NULL without host memory: then nothing is ever a lane again. */
struct lane_thread *lane_thread_begin(struct domain *domain);
void lane_thread_end(struct domain *domain, struct lane_thread *self);

/* Puts a submission on the books: what lane_enter could not see at a glance. Returns 0 if it is no
 * work, since the stream is capturing. Else it may use memory that earlier work of its own stream
 * still uses: it must not overtake that. */
int lane_submit(struct domain *domain, struct lane_thread *self, const struct lane_stream *stream);

/* Is a submission on the books already? If not, lane_submit must be called. Either way lane_leave
 * follows the driver's call. No fence is needed between the store and the load: who reads the
 * epochs has made every thread pass a barrier first. */
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

/* Returns 0 if it was not seen in flight all the time: lane_outrun must be called. */
static inline int lane_leave(struct lane_thread *self)
{
    int seen = atomic_load_explicit(&self->epoch, memory_order_relaxed) != 0;
    atomic_store_explicit(&self->epoch, 0, memory_order_release);
    return seen;
}

/* Within the driver's call a tool was called back that submitted, too. */
void lane_outrun(struct domain *domain);

/* Between lane_submit and lane_leave, for work that waits until somebody writes a value: no lane
 * while it may be outstanding, else who is to write might join what waits. */
void lane_waits(struct domain *domain);

/* Around each stream capture, process-wide: before the driver begins it, and after it ended. */
void lane_capture_begins(struct domain *domain);
void lane_capture_ended(struct domain *domain);

/* Before the driver destroys a stream: its key may be another's from now on. */
void lane_stream_ends(struct domain *domain, uint64_t key);

/* The allocator's own side; the domain's lock is held, but for lane_free_alone and lane_finish. */

/* Is a block freed now reusable at once? Then it is booked as such. alone: into the thread's own
 * cache, without the lock. */
int lane_free(struct allocator *allocator);
int lane_free_alone(struct allocator *allocator);

/* While a capture is under way there is no lane: is the work done that used what was freed on one
 * and is reusable? The domain's lock is held, and dropped meanwhile. */
int lane_is_over(struct allocator *allocator, uint64_t timeout_ns);

/* A fence was sealed: its frees are done, its event not recorded yet. And its end. */
void lane_sealed(struct allocator *allocator, const struct fence *fence);
void lane_fence_ended(struct allocator *allocator, const struct fence *fence, int passed);

/* The context is going. */
void lane_forget(struct allocator *allocator);

/* Waits for work that a lane's reuse has overtaken; without the lock. */
void lane_finish(struct domain *domain);

/* For lane.c and lane_end.c. settled: nobody records a mark now, and the lane, if there is one,
 * has its mark; returns the word. leave_for_good: until there is no lane. Both drop the lock
 * meanwhile. next: the word of the next generation. spoil: the books cannot lead back to a lane. */
uint64_t lane_settled(struct domain *domain);
void lane_leave_for_good(struct domain *domain);
void lane_spoil(struct lane *lane);
static inline uint64_t lane_next(uint64_t word, int mode)
{
    return (word / LANE_GENERATION + 1) * LANE_GENERATION + (unsigned)mode;
}

#endif
