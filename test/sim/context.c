#include "context.h"

#include "call.h"
#include "capture.h"
#include "config.h"
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>

static _Thread_local struct sim_thread self;
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static struct sim_context primaries[SIM_DEVICES_MAX];
static struct sim_context *every;
static unsigned long long last_id;

static void thread_ended(void *thread)
{
    if (engine_forked())
        return;
    engine_lock();
    streams_end_thread(thread);
    captures_end_thread(thread);
    engine_unlock();
}

static int has_key; /* the program may have taken all */

static void key_create(void)
{
    has_key = pthread_key_create(&key, thread_ended) == 0;
}

struct sim_thread *thread_self(void)
{
    if (!self.registered) {
        self.registered = 1;
        pthread_once(&key_once, key_create);
        if (has_key)
            pthread_setspecific(key, &self);
    }
    return &self;
}

int device_is_valid(int device)
{
    return device >= 0 && device < config()->devices;
}

struct sim_context *context_primary(int device)
{
    primaries[device].device = device;
    primaries[device].primary = 1;
    return &primaries[device];
}

struct sim_context *context_from(CUcontext handle)
{
    struct sim_context *context = (struct sim_context *)handle;
    return context && context->alive ? context : NULL;
}

struct sim_context *context_current(CUresult *why)
{
    struct sim_thread *thread = thread_self();
    struct sim_context *context = thread->depth ? thread->stack[thread->depth - 1] : NULL;
    if (!context) {
        *why = CUDA_ERROR_INVALID_CONTEXT;
        return NULL;
    }
    if (!context->alive) {
        *why = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return NULL;
    }
    return context;
}

struct sim_point context_mark(struct sim_context *context, struct sim_event *event)
{
    struct sim_work work = {.kind = WORK_MARK,
                            .call = "context mark",
                            .event = event,
                            .event_turn = event ? event->turn : 0};
    return engine_submit(context->marks, &work, NULL, NULL);
}

void context_wait(struct sim_context *context)
{
    engine_run();
    for (struct sim_queue *queue = engine_active(); queue; queue = queue->next)
        if (queue->context == context) {
            engine_wait(context_mark(context, NULL));
            return;
        }
}

struct sim_context *context_first(void)
{
    return every;
}

static void context_open(struct sim_context *context)
{
    if (!context->id) {
        context->next = every;
        every = context;
    }
    context->alive = 1;
    context->id = ++last_id;
    context->marks = queue_new(QUEUE_MARKS, context, NULL);
    context->legacy = stream_new(context, 0, 0);
    context->legacy->queue->kind = QUEUE_LEGACY;
}

static void context_close(struct sim_context *context)
{
    if (!context->alive)
        return;
    context_wait(context);
    streams_end_context(context);
    queue_drop(context->marks);
    memory_release_context(context);
    context->alive = 0;
    context->references = 0;
}

/* A destroyed handle is the next one handed out, as programs may meet it. */
static struct sim_context *context_dead(void)
{
    struct sim_context *context = every;
    while (context && (context->alive || context->primary))
        context = context->next;
    return context;
}

static CUresult context_create(CUcontext *out, unsigned flags, CUdevice device)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_thread *thread = thread_self();
    struct sim_context *context = context_dead();
    if (thread->depth == SIM_CONTEXT_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!context && !(context = calloc(1, sizeof(*context))))
        abort();
    context->device = device;
    context->flags = flags;
    context->references = 1;
    context_open(context);
    thread->stack[thread->depth++] = context;
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device)
{
    return context_create(out, flags, device);
}

CUresult do_cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *affinity, int count, unsigned flags,
                           CUdevice device)
{
    return affinity || count ? CUDA_ERROR_NOT_SUPPORTED : context_create(out, flags, device);
}

CUresult do_cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned flags,
                           CUdevice device)
{
    (void)params;
    return context_create(out, flags, device);
}

/* The record stays, dead: other threads may still hold it current. */
CUresult do_cuCtxDestroy_v2(CUcontext handle)
{
    struct sim_context *context = context_from(handle);
    if (!context || context->primary || context->green)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_thread *thread = thread_self();
    if (thread->depth && thread->stack[thread->depth - 1] == context)
        thread->depth--;
    context_close(context);
    return CUDA_SUCCESS;
}

CUresult do_cuCtxAttach(CUcontext *out, unsigned flags)
{
    CUresult why = CUDA_ERROR_INVALID_VALUE;
    struct sim_context *context = out && !flags ? context_current(&why) : NULL;
    if (!context)
        return why;
    context->references++;
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

/* Only of the current one; the last ends it. */
CUresult do_cuCtxDetach(CUcontext handle)
{
    CUresult why;
    struct sim_context *context = context_current(&why);
    if (!context || context != context_from(handle) || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    return --context->references ? CUDA_SUCCESS : do_cuCtxDestroy_v2(handle);
}

CUresult do_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_context *context = context_primary(device);
    if (!context->alive)
        context_open(context);
    context->references++;
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_context *context = context_primary(device);
    if (!context->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->references == 1)
        context_close(context);
    else
        context->references--;
    return CUDA_SUCCESS;
}

/* One with memory of its own; that of CUDA is the primary context's. */
CUresult do_cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc resources, CUdevice device,
                             unsigned flags)
{
    CUcontext primary, context;
    (void)resources;
    CUresult result =
        out ? do_cuDevicePrimaryCtxRetain(&primary, device) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    result = context_create(&context, flags, device);
    if (result) {
        do_cuDevicePrimaryCtxRelease_v2(device);
        return result;
    }
    thread_self()->depth--; /* it is not current */
    ((struct sim_context *)context)->green = 1;
    *out = (CUgreenCtx)context;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green)
{
    struct sim_context *context = context_from((CUcontext)green);
    if (!out || !context || !context->green)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult do_cuGreenCtxDestroy(CUgreenCtx green)
{
    struct sim_context *context = context_from((CUcontext)green);
    if (!context || !context->green)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_close(context);
    context->green = 0;
    return do_cuDevicePrimaryCtxRelease_v2(context->device);
}

CUresult do_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    context_close(context_primary(device));
    return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_context *context = context_primary(device);
    if (flags)
        *flags = context->flags;
    if (active)
        *active = context->alive;
    return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    context_primary(device)->flags = flags;
    return CUDA_SUCCESS;
}
