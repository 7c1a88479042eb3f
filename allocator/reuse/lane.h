/* Lanes: a freed block is reusable at once while all outstanding work is on one stream (R1).
 *
 * The rule is at the head of lane.c. Every submission of work passes lane_enter before the driver's
 * call and lane_leave after it, in the thread that makes it. All functions but these two may call
 * the driver, and hold no lock while they do. */
#ifndef CACHALOT_ALLOCATOR_REUSE_LANE_H
#define CACHALOT_ALLOCATOR_REUSE_LANE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct domain;

/* Where work goes. Equal keys are surely the same stream, and a key never becomes another stream's
 * before lane_stream_ends. Equal names of one thread are surely the same key. */
struct lane_stream {
    uint64_t key, name;
    void *handle;
    int per_thread; /* handle 0 is the thread's own default stream */
};

/* What is asked of the driver about streams; in the thread that submits, with its context current.
 */
struct lane_ops {
    uint64_t (*context)(const struct lane_stream *stream); /* as in allocator_create; 0: unknown */
    int (*is_capturing)(const struct lane_stream *stream);
    int (*join)(const struct lane_stream *stream, void *event); /* later work waits for `event` */
    int (*barrier)(void); /* every thread's earlier stores are seen from here on: 0, or -1 */
};

/* One per thread that submits. A note: this thread put that stream on the books under that word.
 * `in_order`: and nothing of its own is surely on the stream since, so a launch must not overtake.
 */
enum { LANE_NOTE_BITS = 3, LANE_NOTES = 1 << LANE_NOTE_BITS };
struct lane_thread {
    _Atomic uint64_t epoch; /* when the submission under way began; 0: none is */
    const struct lane_state *state;
    uint64_t word[LANE_NOTES], name[LANE_NOTES]; /* of each note; a word is never 0 */
    int in_order[LANE_NOTES];
    struct lane_thread *next, *previous;
};

/* Which note is that of a stream, if there is one. */
static inline unsigned lane_note(uint64_t name)
{
    return (uint32_t)name * UINT32_C(0x9e3779b1) >> (32 - LANE_NOTE_BITS);
}

struct lane_state {
    /* All 0 in a forked child: nothing is on the books there. Names below the least never are. */
    _Atomic uint64_t word, epoch, least_name;
};

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

#endif
