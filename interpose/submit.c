#include "interpose/submit.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/capture.h"
#include "interpose/context.h"
#include "interpose/process.h"
#include "interpose/thread.h"

/* This thread's share; in a forked child what it holds is never looked at, since nothing is served.
 */
static _Thread_local struct {
    int begun;
    struct lane_thread *lane;
    CUcontext context; /* which `key` is for */
    uint64_t key;      /* of the thread's own default stream */
} self;

/* Keys: a handle is even; the legacy stream's is odd; those of threads are beyond any address. */
#define THREAD_KEYS ((uint64_t)1 << 62)

/* Handles are the driver's addresses; the contexts' are told apart only once there are several. */
static CUcontext distinct_context(void)
{
    CUcontext context = NULL;
    if (atomic_load_explicit(&process->several_contexts, memory_order_relaxed))
        real()->cuCtxGetCurrent(&context);
    return context;
}

static uint64_t thread_key(void)
{
    static _Atomic uint64_t last;
    CUcontext context = distinct_context();
    if (!self.key || self.context != context) {
        self.key = THREAD_KEYS | ++last;
        self.context = context;
    }
    return self.key;
}

uint64_t submit_key(CUstream stream, int per_thread)
{
    if (stream == CU_STREAM_PER_THREAD || (per_thread && !stream))
        return thread_key();
    if (!stream || stream == CU_STREAM_LEGACY)
        return (uint64_t)(uintptr_t)distinct_context() | 1;
    return (uint64_t)(uintptr_t)stream;
}

static int is_default(const struct lane_stream *stream)
{
    return (uintptr_t)stream->handle <= (uintptr_t)CU_STREAM_PER_THREAD;
}

static uint64_t context_of(const struct lane_stream *stream)
{
    CUcontext context = NULL;
    CUresult result = is_default(stream) ? real()->cuCtxGetCurrent(&context)
                                         : real()->cuStreamGetCtx(stream->handle, &context);
    return result == CUDA_SUCCESS ? (uint64_t)(uintptr_t)context : 0;
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

static const struct lane_ops lane_ops = {
    .context = context_of, .is_capturing = is_capturing, .join = join, .barrier = barrier};

void submit_start(void)
{
    if (process->config.options.free_mode != FREE_ASYNC || !process->config.options.cache)
        return;
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    lane_start(process->domain, &lane_ops);
    process->lanes = lane_state(process->domain);
}

void submit_context_made(CUcontext context)
{
    uintptr_t none = 0;
    if (!atomic_compare_exchange_strong(&process->first_context, &none, (uintptr_t)context) &&
        none != (uintptr_t)context)
        atomic_store(&process->several_contexts, 1);
}

static void thread_begins(void)
{
    self.begun = 1;
    self.lane = lane_thread_begin(process->domain);
    thread_watch();
}

void submit_thread_ends(void)
{
    if (self.lane && process_serving())
        lane_thread_end(process->domain, self.lane);
    self.lane = NULL;
    self.begun = 0;
}

int submit_begin(enum submission_kind kind, CUstream stream, int per_thread)
{
    if (!process_serving())
        return 0;
    atomic_fetch_add_explicit(&process->page->submissions[kind], 1, memory_order_relaxed);
    if (!process->lanes)
        return 0;
    if (!self.begun)
        thread_begins();
    uint64_t key = submit_key(stream, per_thread);
    if (self.lane && lane_enter(process->lanes, self.lane, key))
        return 0;
    const struct lane_stream where = {key, stream, per_thread};
    process_inside++;
    int in_order = lane_submit(process->domain, self.lane, &where);
    process_inside--;
    return in_order;
}

static void note_host_work(const struct lane_stream *stream)
{
    struct context *context = context_with((CUcontext)(uintptr_t)context_of(stream));
    if (!context || (capture_active() && is_capturing(stream)))
        return;
    process_inside++;
    allocator_note_host_work(context->allocator);
    process_inside--;
}

void submit_end(CUresult result, CUstream stream, int per_thread, int to_host)
{
    if (self.lane)
        lane_leave(self.lane);
    if (to_host && result == CUDA_SUCCESS && process_serving() &&
        process->config.options.free_mode != FREE_STRICT)
        note_host_work(&(struct lane_stream){0, stream, per_thread});
}

void submit_stream_ends(CUstream stream)
{
    if (process_serving())
        lane_stream_ends(process->domain, (uint64_t)(uintptr_t)stream);
}
