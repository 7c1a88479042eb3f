#include "interpose/stream/submit.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/context/capture.h"
#include "interpose/context/context.h"
#include "interpose/process/gate.h"
#include "interpose/process/process.h"
#include "interpose/process/thread_exit.h"
#include "interpose/resolve/unseen.h"

_Thread_local struct submitter submitter;

static struct WIPED lanes {
    int on;                /* free_mode is async */
    _Atomic uint64_t rows; /* bit i: a thread owns row i of the page */
} lanes;
static const struct wiped wiped WIPED_ENTRY = {&lanes, sizeof lanes};

#define THREAD_KEYS ((uint64_t)1 << 62) /* beyond any address */

static uint64_t thread_key(CUcontext context)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t key;
    static _Thread_local CUcontext of;
    if (!key || of != context) {
        key = THREAD_KEYS | ++last;
        of = context;
    }
    return key;
}

static int is_default(CUstream stream)
{
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD;
}

/* The name of a stream for its lane. Handles are even, so odd names are free. Each context has its
 * own default streams; the driver is asked for the context only if there are several. */
static struct lane_stream name_of(CUstream stream, int per_thread)
{
    CUcontext context = NULL;
    uint64_t name = submit_name(stream, per_thread);
    int several = is_default(stream) && atomic_load(&contexts.several);
    struct lane_stream where = {name, name, stream, per_thread};
    if (several)
        real()->cuCtxGetCurrent(&context);
    if (name == (uintptr_t)CU_STREAM_PER_THREAD)
        where.key = thread_key(context);
    else if (name <= (uintptr_t)CU_STREAM_LEGACY)
        where.key = (uint64_t)(uintptr_t)context | 1;
    if (several)
        where.name = where.key;
    return where;
}

static uint64_t context_of(const struct lane_stream *stream)
{
    return (uint64_t)(uintptr_t)context_of_stream(stream->handle);
}

static int is_capturing(const struct lane_stream *stream)
{
    return capture_is_on(stream->handle, stream->per_thread);
}

static int join(const struct lane_stream *stream, void *event)
{
    return (int)(stream->per_thread ? real()->cuStreamWaitEvent_ptsz(stream->handle, event, 0)
                                    : real()->cuStreamWaitEvent(stream->handle, event, 0));
}

static int barrier(void)
{
    return (int)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

static int record(const struct lane_stream *stream, void **event)
{
    CUresult result = CUDA_SUCCESS;
    CUstream handle = stream->handle;
    if (!handle && stream->per_thread)
        handle = CU_STREAM_PER_THREAD;
    if (!*event)
        result = real()->cuEventCreate((CUevent *)event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = real()->cuEventRecord(*event, handle);
    return result == CUDA_SUCCESS ? 0 : -1;
}

int submit_say_unseen(void)
{
    static _Atomic int said;
    const char *way = unseen_way();
    if (way && !atomic_exchange(&said, 1))
        process_note_unseen(way);
    return way != NULL;
}

static enum lane_sight look_around_now(void)
{
    enum lane_sight sight = unseen_look();
    if (sight == SIGHT_PAST)
        submit_say_unseen();
    return sight;
}

static void unseen(void)
{
    process_note_unseen("an event of the whole context did not pass, though all known work had "
                        "finished");
}

static const struct lane_ops lane_ops = {.context = context_of,
                                         .is_capturing = is_capturing,
                                         .join = join,
                                         .barrier = barrier,
                                         .record = record,
                                         .look_around = look_around_now,
                                         .unseen = unseen};

void submit_look_around(void)
{
    if (submit_say_unseen())
        lane_work_is_past(process.domain);
}

/* A forked child's copy of its parent's lane. Where the kernel does not wipe, the copy still looks
 * valid. */
static void forget_lane(void)
{
    submitter.alone = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_lane);
}

void submit_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (process.config.options.free_mode != FREE_ASYNC || !process.config.options.cache)
        return;
    pthread_once(&once, watch_forks);
    lane_start(process.domain, &lane_ops);
    lanes.on = 1;
}

void submit_context_made(CUcontext context)
{
    lane_watch(process.domain);
    if (context_found(context))
        lane_names_from(process.domain, (uintptr_t)CU_STREAM_PER_THREAD + 1);
}

/* Takes a row of the page for this thread alone. Returns 0, the shared row, if all are taken. */
static unsigned take_row(void)
{
    uint64_t taken = atomic_load(&lanes.rows);
    for (;;) {
        uint64_t free = ~(taken | 1);
        if (!free)
            return 0;
        if (atomic_compare_exchange_weak(&lanes.rows, &taken, taken | (free & -free)))
            return (unsigned)__builtin_ctzll(free);
    }
}

static void thread_begins(void)
{
    submitter = (struct submitter){.begun_in = process.life};
    if (thread_exit_watch() && lanes.on && (submitter.lane = lane_thread_begin(process.domain)))
        submitter.row = take_row();
    submitter.alone = submitter.row ? submitter.lane : NULL;
    submitter.submissions = process.page->thread[submitter.row].submissions;
}

void submit_thread_ends(void)
{
    if (!process_serving() || submitter.begun_in != process.life)
        return;
    if (submitter.lane)
        lane_thread_end(process.domain, submitter.lane);
    atomic_fetch_and(&lanes.rows, ~(submitter.row ? UINT64_C(1) << submitter.row : 0));
    submitter = (struct submitter){0};
}

/* Waits while the process sleeps. Meanwhile the thread is not in flight. */
static void pass_gate(void)
{
    while (gate_is_closed()) {
        if (submitter.lane)
            lane_leave(submitter.lane);
        gate_await();
    }
}

int submit_put(enum submission_kind kind, CUstream stream, int per_thread)
{
    int in_order = 0;
    real();
    pass_gate();
    if (!process_serving())
        return 0;
    process_inside++;
    if (submitter.begun_in != process.life)
        thread_begins();
    if (submitter.row)
        stat_increase(&submitter.submissions[kind], 1);
    else
        atomic_fetch_add_explicit(&submitter.submissions[kind], 1, memory_order_relaxed);
    if (lanes.on) {
        const struct lane_stream where = name_of(stream, per_thread);
        struct lane_thread *self = submitter.lane;
        do { /* in flight first, then a look at the gate: a thread that closes it sees this one */
            pass_gate();
            int seen = self && lane_enter(self, where.name);
            in_order = seen ? self->in_order[lane_note(where.name)]
                            : lane_submit(process.domain, self, &where);
        } while (gate_is_closed());
    }
    process_inside--;
    return in_order;
}

void submit_was_in_order(CUstream stream, int per_thread)
{
    uint64_t name = name_of(stream, per_thread).name;
    if (capture_active() || !submitter.lane) /* captured work goes into a graph */
        return;
    unsigned note = lane_note(name);
    if (submitter.lane->name[note] == name)
        submitter.lane->in_order[note] = 0;
}

static void note_host_work(const struct lane_stream *stream)
{
    CUcontext handle = context_of_stream(stream->handle);
    struct context *context = context_noted(handle);
    if (capture_active() && is_capturing(stream))
        return;
    if (!context) { /* the context has no allocator yet */
        context_expect_host_work();
        context = context_noted(handle); /* or got one meanwhile */
    }
    if (!context)
        return;
    process_inside++;
    allocator_note_host_work(context->allocator);
    process_inside--;
}

void submit_to_host(CUstream stream, int per_thread)
{
    if (process_serving() && process.config.options.free_mode != FREE_STRICT)
        note_host_work(&(struct lane_stream){.handle = stream, .per_thread = per_thread});
}

void submit_waits(void)
{
    if (!process_serving())
        return;
    process_inside++;
    lane_waits(process.domain);
    process_inside--;
}

CUresult submit_outrun(CUresult result)
{
    if (!process_serving())
        return result;
    gate_forbid("a tool submits work within calls of the driver");
    process_inside++;
    lane_outrun(process.domain);
    process_inside--;
    return result;
}

void submit_stream_ends(CUstream stream)
{
    if (process_serving())
        lane_stream_ends(process.domain, (uint64_t)(uintptr_t)stream);
}
