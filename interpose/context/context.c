#include "interpose/context/context.h"

#include "interpose/context/capture.h"
#include "interpose/context/device_ops.h"
#include "interpose/resolve/real_driver.h"

/* The context that this thread used last, valid while the generation stands. */
static _Thread_local struct {
    CUcontext handle;
    uint64_t generation;
    struct context *context;
    int switches; /* that this thread is in */
} last;

_Thread_local struct context_note context_note;
_Thread_local int context_bound;

int context_primary_is_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    CUresult result = real()->cuDevicePrimaryCtxGetState(device, &flags, &active);
    return result == CUDA_SUCCESS ? active != 0 : -1;
}

CUcontext context_active_primary(CUdevice device)
{
    CUcontext primary = NULL;
    if (real()->cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return NULL;
    real()->cuDevicePrimaryCtxRelease_v2(device);
    return primary;
}

struct context *context_slot_of(CUcontext handle)
{
    for (unsigned i = 0; i < MOST_CONTEXTS; i++)
        if (process->contexts[i].handle == handle)
            return &process->contexts[i];
    return NULL;
}

static struct context *seek(CUcontext handle)
{
    pthread_mutex_lock(&process->context_lock);
    struct context *context = context_slot_of(handle);
    pthread_mutex_unlock(&process->context_lock);
    return context;
}

/* How many changes of primary contexts this thread is in. More than one: a tool's function, which
 * the driver calls back within its own. */
static _Thread_local int changes;

/* Only the outermost takes a lock: its own it has, and for another device's two threads might wait
 * for each other. */
void context_change_begin(CUdevice device)
{
    if (!changes++)
        pthread_mutex_lock(&process->primary_lock[(unsigned)device % PEER_DEVICES]);
}

void context_change_end(CUdevice device)
{
    if (!--changes)
        pthread_mutex_unlock(&process->primary_lock[(unsigned)device % PEER_DEVICES]);
}

/* The current one's. Within a change nothing is made: what is current is being made, or may be
 * ending. */
static struct context *find(CUcontext handle)
{
    CUdevice device;
    struct context *context = seek(handle);
    if (context || changes || real()->cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return context;
    context_change_begin(device);
    context = seek(handle);
    if (!context)
        context = context_make(handle);
    context_change_end(device);
    return context;
}

/* Nothing is noted of one that is ending: its slot may be another's next. */
struct context *context_ask(void)
{
    CUcontext handle = NULL;
    if (real()->cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !handle)
        return NULL;
    uint64_t generation = atomic_load(&process->generation);
    while (last.handle != handle || last.generation != generation) {
        struct context *context = find(handle);
        int serves = context && !atomic_load(&context->suspended);
        last.context = context;
        last.handle = serves ? handle : NULL;
        last.generation = generation;
        generation = atomic_load(&process->generation);
        if (!serves && last.generation == generation)
            return NULL;
    }
    if (!last.switches && !atomic_load(&process->several_contexts))
        context_note = (struct context_note){generation, last.context};
    return last.context;
}

void context_switch_begin(void)
{
    last.switches++;
    context_note = (struct context_note){0, NULL};
    context_bound = 0;
}

void context_switch_end(void)
{
    last.switches--;
}

CUresult context_push(CUcontext handle)
{
    last.switches++;
    CUresult result = real()->cuCtxPushCurrent_v2(handle);
    if (result != CUDA_SUCCESS)
        last.switches--;
    return result;
}

void context_pop(void)
{
    CUcontext popped;
    /* Refused once, once more: else the program would have another context current. */
    if (real()->cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS)
        real()->cuCtxPopCurrent_v2(&popped);
    last.switches--;
}

enum { SUSPENDED = 1, CLOSED, ENDING /* and has a slot only for that */ };

struct context *context_noted(CUcontext handle)
{
    struct context *context = context_current();
    if (!handle || (context && context->handle == handle))
        return handle ? context : NULL;
    context = seek(handle);
    return context && context->allocator && atomic_load(&context->suspended) != CLOSED ? context
                                                                                       : NULL;
}

/* Caller holds the context lock. */
static void shut(struct context *context)
{
    context->ender = driver_ops.thread_id();
    context->last_capture = capture_last();
    ipc_forget(context->handle);
    int before = context->suspended;
    if (before == CLOSED || before == ENDING)
        return;
    atomic_store(&context->suspended, CLOSED);
    if (context->allocator && allocator_forget(context->allocator))
        process_count(COVERAGE_context_losses);
}

/* Caller holds the context lock, and the handle has no slot. NULL: there are too many. */
static struct context *take_refused(CUcontext handle)
{
    struct context *context = context_slot_of(NULL);
    if (!context)
        return NULL;
    context->allocator = NULL;
    context->primary = 0;
    context->ender = 0;
    atomic_store(&context->suspended, SUSPENDED);
    context->handle = handle;
    return context;
}

/* Also what has no slot: else it would get one on the way to its end. */
void context_close(CUcontext handle)
{
    if (!handle)
        return;
    pthread_mutex_lock(&process->context_lock);
    struct context *context = context_slot_of(handle);
    int unnoted = !context;
    if (unnoted)
        context = take_refused(handle);
    if (context)
        shut(context);
    if (context && unnoted)
        atomic_store(&context->suspended, ENDING);
    pthread_mutex_unlock(&process->context_lock);
}

void context_refuse(CUcontext handle)
{
    pthread_mutex_lock(&process->context_lock);
    if (!context_slot_of(handle))
        take_refused(handle);
    pthread_mutex_unlock(&process->context_lock);
}

void context_end_refused(CUcontext handle)
{
    pthread_mutex_lock(&process->context_lock);
    struct context *context = context_slot_of(handle);
    if (context && context->suspended == ENDING && context->ender == driver_ops.thread_id()) {
        atomic_fetch_add(&process->generation, 1); /* threads may have looked it up */
        context->handle = NULL;
    }
    pthread_mutex_unlock(&process->context_lock);
}

void context_empty(CUcontext handle)
{
    const struct context *context = handle ? seek(handle) : NULL;
    if (context && context->allocator)
        allocator_empty(context->allocator);
}

struct allocator *context_forget(CUcontext handle)
{
    struct allocator *allocator = NULL;
    uint64_t captures = 0;
    if (!handle)
        return NULL;
    pthread_mutex_lock(&process->context_lock);
    struct context *context = context_slot_of(handle);
    if (context && context->ender == driver_ops.thread_id()) { /* else the handle's next owner's */
        allocator = context->allocator;
        captures = context->last_capture;
        atomic_fetch_add(&process->generation, 1);
        context->handle = NULL;
    }
    pthread_mutex_unlock(&process->context_lock);
    if (captures)
        capture_context_ended(handle, captures); /* calls the driver */
    return allocator;
}

/* A default stream is the current one's, and the driver says no more. */
CUcontext context_of_stream(CUstream stream)
{
    CUcontext context = NULL;
    CUresult result = (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD
                          ? real()->cuCtxGetCurrent(&context)
                          : real()->cuStreamGetCtx(stream, &context);
    return result == CUDA_SUCCESS ? context : NULL;
}

int context_is_primary(CUcontext handle)
{
    pthread_mutex_lock(&process->context_lock);
    const struct context *context = handle ? context_slot_of(handle) : NULL;
    int primary = context && context->primary;
    pthread_mutex_unlock(&process->context_lock);
    return primary;
}

static struct context *primary_of(CUdevice device)
{
    for (unsigned i = 0; i < MOST_CONTEXTS; i++) {
        struct context *context = &process->contexts[i];
        if (context->handle && context->primary && context->device == device)
            return context;
    }
    return NULL;
}

CUcontext context_primary(CUdevice device)
{
    pthread_mutex_lock(&process->context_lock);
    const struct context *context = primary_of(device);
    CUcontext handle = context ? context->handle : NULL;
    pthread_mutex_unlock(&process->context_lock);
    if (handle || !capture_active() || changes > 1 || context_primary_is_active(device) <= 0)
        return handle;
    return context_active_primary(device); /* not on our books, but captures of it may be */
}

int context_suspend(CUcontext handle, int suspended)
{
    pthread_mutex_lock(&process->context_lock);
    struct context *context = handle ? context_slot_of(handle) : NULL;
    int before = context ? atomic_load(&context->suspended) : 0;
    struct allocator *allocator = context && before != CLOSED ? context->allocator : NULL;
    if (allocator)
        atomic_store(&context->suspended, suspended);
    pthread_mutex_unlock(&process->context_lock);
    if (allocator)
        allocator_put_away(allocator, suspended);
    return before;
}

struct allocator *context_forget_ended(CUdevice device, CUcontext handle)
{
    if (!handle || context_primary_is_active(device) != 0)
        return NULL;
    context_close(handle);
    return context_forget(handle);
}
