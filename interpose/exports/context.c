/* Exported: the ends of contexts and streams, and captures. This file orders what the other rooms
 * do at such an end. */
#include "interpose/context/capture.h"
#include "interpose/context/context.h"
#include "interpose/process/gate.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/memory/ipc.h"
#include "interpose/memory/pinned.h"
#include "interpose/memory/uncached.h"
#include "interpose/memory/retry.h"
#include "interpose/sleep/settle.h"
#include "interpose/stream/submit.h"

static void made(CUcontext context, CUdevice device)
{
    if (process_serving()) {
        submit_context_made(context);
        settle_context_made(context);
        driver_device_used(device, ipc_allow_peer);
    }
}

/* A function that makes a context. */
#define MAKES_CONTEXT(name, parameters, arguments)                                                 \
    CUresult name parameters                                                                       \
    {                                                                                              \
        CUresult result;                                                                           \
        context_switch_begin();                                                                    \
        RETRIED(result, real()->name arguments);                                                   \
        context_switch_end();                                                                      \
        if (result == CUDA_SUCCESS)                                                                \
            made(*context, device);                                                                \
        return result;                                                                             \
    }
MAKES_CONTEXT(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device),
              (context, flags, device))
MAKES_CONTEXT(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
              (context, flags, device))
MAKES_CONTEXT(cuCtxCreate_v3,
              (CUcontext * context, CUexecAffinityParam *affinity, int n, unsigned int flags,
               CUdevice device),
              (context, affinity, n, flags, device))
MAKES_CONTEXT(cuCtxCreate_v4,
              (CUcontext * context, CUctxCreateParams *parameters, unsigned int flags,
               CUdevice device),
              (context, parameters, flags, device))
MAKES_CONTEXT(cuGLCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device),
              (context, flags, device))
MAKES_CONTEXT(cuGLCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
              (context, flags, device))
MAKES_CONTEXT(cuVDPAUCtxCreate,
              (CUcontext * context, unsigned int flags, CUdevice device, uint32_t vdp_device,
               void *vdp_address),
              (context, flags, device, vdp_device, vdp_address))
MAKES_CONTEXT(cuVDPAUCtxCreate_v2,
              (CUcontext * context, unsigned int flags, CUdevice device, uint32_t vdp_device,
               void *vdp_address),
              (context, flags, device, vdp_device, vdp_address))

/* A function that changes the current context. */
#define SWITCHES(name, parameters, arguments)                                                      \
    CUresult name parameters                                                                       \
    {                                                                                              \
        context_switch_begin();                                                                    \
        CUresult result = real()->name arguments;                                                  \
        context_switch_end();                                                                      \
        return result;                                                                             \
    }
SWITCHES(cuCtxSetCurrent, (CUcontext context), (context))
SWITCHES(cuCtxPushCurrent, (CUcontext context), (context))
SWITCHES(cuCtxPushCurrent_v2, (CUcontext context), (context))
SWITCHES(cuCtxPopCurrent, (CUcontext * context), (context))
SWITCHES(cuCtxPopCurrent_v2, (CUcontext * context), (context))

/* Before the driver is told of the end: nothing more is served, and no import is opened. */
static void close_context(CUcontext context)
{
    context_close(context);
    pinned_context_ends(context);
    ipc_forget(context);
}

/* Closes and forgets the primary context of this handle if the driver has ended it. */
static struct allocator *forget_ended(CUdevice device, CUcontext primary)
{
    if (!primary || context_primary_is_active(device) != 0)
        return NULL;
    close_context(primary);
    return context_forget(primary);
}

/* The context may be ending (1), or lives on (0). Returns the value before. */
static int suspend(CUcontext context, int suspended)
{
    pinned_suspend(context, suspended);
    return context_suspend(context, suspended);
}

/* After the driver has ended a context: unmaps what is left of its memory. */
static void bury(CUcontext context, struct allocator *lost)
{
    settle_context_ended(context);
    if (lost)
        allocator_bury(lost);
    if (process_serving())
        ipc_bury(context);
}

/* The device's primary context, also one that is only on the books of uncached memory. */
static CUcontext primary_of(CUdevice device)
{
    CUcontext context = context_primary(device);
    return context || !uncached_has(device) ? context : context_primary_unnoted(device);
}

/* Around a call that retains a primary context. We may be called within a release, and that may
 * have ended it. */
struct retaining {
    CUcontext before;
    struct allocator *lost;
};

static void retaining_begins(struct retaining *retaining, CUdevice device)
{
    context_change_begin(device);
    retaining->before = context_primary(device);
    retaining->lost = forget_ended(device, retaining->before);
}

static void retaining_over(const struct retaining *retaining, CUdevice device)
{
    context_change_end(device);
    if (retaining->lost)
        bury(retaining->before, retaining->lost);
}

static CUresult retain_primary(CUcontext *context, CUdevice device)
{
    struct retaining retaining;
    if (!process_serving())
        return real()->cuDevicePrimaryCtxRetain(context, device);
    retaining_begins(&retaining, device);
    CUresult result = real()->cuDevicePrimaryCtxRetain(context, device);
    retaining_over(&retaining, device);
    return result;
}

static CUresult create_green(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                             unsigned flags)
{
    struct retaining retaining;
    if (!process_serving())
        return real()->cuGreenCtxCreate(green, resources, device, flags);
    retaining_begins(&retaining, device);
    CUresult result = real()->cuGreenCtxCreate(green, resources, device, flags);
    retaining_over(&retaining, device);
    if (result == CUDA_SUCCESS) /* streams of it need no context that anybody could name */
        gate_forbid("the program has a green context");
    return result;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                          unsigned flags)
{
    CUresult result;
    RETRIED(result, create_green(green, resources, device, flags));
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result;
    RETRIED(result, retain_primary(context, device));
    if (result == CUDA_SUCCESS)
        made(*context, device);
    return result;
}

/* The driver refuses to destroy a primary context: its blocks live on. Any other error may stem
 * from earlier work, and the context be gone. If it is not, it stays closed, and its memory mapped,
 * until it ends. */
static CUresult destroy(CUresult (*call)(CUcontext), CUcontext context)
{
    if (!process_serving())
        return call(context);
    PASS_GATE;
    int primary = context_is_primary(context);
    domain_end_begins(process.domain);
    if (!primary) {
        context_empty(context);
        close_context(context);
        uncached_context_ends(context);
    }
    context_switch_begin();
    CUresult result = call(context);
    context_switch_end();
    unsigned version;
    int ended =
        !result || (!primary && real()->cuCtxGetApiVersion(context, &version) != CUDA_SUCCESS);
    uncached_context_ended(context, ended);
    if (ended)
        bury(context, context_forget(context));
    else if (!primary)
        context_end_refused(context);
    domain_end_over(process.domain);
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return destroy(real()->cuCtxDestroy, context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return destroy(real()->cuCtxDestroy_v2, context);
}

/* Only the last detach ends the context: then it is not current any more. */
CUresult cuCtxDetach(CUcontext context)
{
    CUcontext current = NULL;
    CUdevice device;
    unsigned version;
    PASS_GATE;
    if (!process_serving() || real()->cuCtxGetCurrent(&current) != CUDA_SUCCESS || !context ||
        current != context)
        return real()->cuCtxDetach(context); /* the driver refuses */
    const struct context *noted = context_noted(context);
    if (noted)
        device = noted->device;
    else if (real()->cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return real()->cuCtxDetach(context);
    context_change_begin(device); /* one detach at a time */
    domain_end_begins(process.domain);
    int before = suspend(context, 1);
    uncached_context_ends(context);
    context_switch_begin();
    CUresult result = real()->cuCtxDetach(context);
    context_switch_end();
    real()->cuCtxGetCurrent(&current);
    int ended = (!result && current != context) ||
                real()->cuCtxGetApiVersion(context, &version) != CUDA_SUCCESS;
    uncached_context_ended(context, ended);
    if (ended) {
        close_context(context);
        bury(context, context_forget(context));
    }
    suspend(context, before);
    context_change_end(device);
    domain_end_over(process.domain);
    return result;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    CUresult result = real()->cuCtxFromGreenCtx(context, green);
    if (process_serving() && result == CUDA_SUCCESS) {
        context_refuse(*context);
        submit_context_made(*context);
        settle_context_made(*context);
    }
    return result;
}

struct release {
    CUresult (*call)(CUdevice);
    CUgreenCtx green; /* or: destroys this green context, which retains the primary one */
    CUcontext of_green;
};

static CUresult run_release(const struct release *release, CUdevice device)
{
    unsigned version;
    if (release->call)
        return release->call(device);
    uncached_context_ends(release->of_green);
    CUresult result = real()->cuGreenCtxDestroy(release->green);
    int ended = !result || real()->cuCtxGetApiVersion(release->of_green, &version) != CUDA_SUCCESS;
    uncached_context_ended(release->of_green, ended);
    if (ended)
        bury(release->of_green, context_forget(release->of_green));
    else
        context_end_refused(release->of_green);
    return result;
}

/* The driver counts releases: only the last one ends the context. */
static CUresult release_primary(const struct release *release, CUdevice device)
{
    if (!process_serving())
        return run_release(release, device);
    PASS_GATE;
    context_change_begin(device);
    CUcontext context = primary_of(device);
    domain_end_begins(process.domain);
    int before = suspend(context, 1);
    uncached_context_ends(context);
    CUresult result = run_release(release, device);
    /* The release may return an error of earlier work and have ended the context. */
    uncached_context_ended(context, context_primary_is_active(device) == 0);
    struct allocator *lost = forget_ended(device, context);
    suspend(context, before);
    context_change_end(device);
    if (lost)
        bury(context, lost);
    domain_end_over(process.domain);
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return release_primary(&(struct release){real()->cuDevicePrimaryCtxRelease, NULL, NULL},
                           device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return release_primary(&(struct release){real()->cuDevicePrimaryCtxRelease_v2, NULL, NULL},
                           device);
}

static int device_of(CUcontext context, CUdevice *device)
{
    if (context_push(context) != CUDA_SUCCESS)
        return -1;
    CUresult result = real()->cuCtxGetDevice(device);
    context_pop();
    return result == CUDA_SUCCESS ? 0 : -1;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext context;
    CUdevice device;
    if (!process_serving() || real()->cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS ||
        device_of(context, &device))
        return real()->cuGreenCtxDestroy(green);
    close_context(context);
    return release_primary(&(struct release){NULL, green, context}, device);
}

static CUresult reset_primary(CUresult (*reset)(CUdevice), CUdevice device)
{
    if (!process_serving())
        return reset(device);
    PASS_GATE;
    context_change_begin(device);
    domain_end_begins(process.domain);
    CUcontext context = primary_of(device);
    context_empty(context);
    close_context(context);
    uncached_context_ends(context);
    CUresult result = reset(device);
    int ended = !result || context_primary_is_active(device) == 0;
    uncached_context_ended(context, ended);
    struct allocator *lost = ended ? context_forget(context) : NULL;
    context_change_end(device);
    if (ended)
        bury(context, lost);
    else
        context_end_refused(context);
    domain_end_over(process.domain);
    return result;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return reset_primary(real()->cuDevicePrimaryCtxReset, device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return reset_primary(real()->cuDevicePrimaryCtxReset_v2, device);
}

/* A function that begins a capture on `stream`. */
#define BEGIN(name, per_thread, parameters, arguments)                                             \
    CUresult name parameters                                                                       \
    {                                                                                              \
        if (!process_serving())                                                                    \
            return real()->name arguments;                                                         \
        PASS_GATE;                                                                                 \
        CUcontext context = context_of_stream(stream);                                             \
        capture_before_begin();                                                                    \
        CUresult result = real()->name arguments;                                                  \
        capture_after_begin(stream, per_thread, context, result);                                  \
        return result;                                                                             \
    }
#define TO_GRAPH                                                                                   \
    (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,       \
     size_t n, CUstreamCaptureMode mode)
#define TO_GRAPH_AGAIN                                                                             \
    (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback changed,   \
     void *data)

BEGIN(cuStreamBeginCapture, 0, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_ptsz, 1, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_v2, 0, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN(cuStreamBeginCapture_v2_ptsz, 1, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN(cuStreamBeginCaptureToGraph, 0, TO_GRAPH, (stream, graph, nodes, edges, n, mode))
BEGIN(cuStreamBeginCaptureToGraph_ptsz, 1, TO_GRAPH, (stream, graph, nodes, edges, n, mode))
BEGIN(cuStreamBeginRecaptureToGraph, 0, TO_GRAPH_AGAIN, (stream, mode, graph, changed, data))
BEGIN(cuStreamBeginRecaptureToGraph_ptsz, 1, TO_GRAPH_AGAIN, (stream, mode, graph, changed, data))

static CUresult end_capture(CUresult (*call)(CUstream, CUgraph *), CUstream stream, int per_thread,
                            CUgraph *graph)
{
    if (!process_serving())
        return call(stream, graph);
    uint64_t number = capture_before_end(stream, per_thread);
    CUresult result = call(stream, graph);
    capture_after_end(stream, per_thread, number);
    return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return end_capture(real()->cuStreamEndCapture, stream, 0, graph);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return end_capture(real()->cuStreamEndCapture_ptsz, stream, 1, graph);
}

static CUresult destroy_stream(CUresult (*call)(CUstream), CUstream stream)
{
    if (!process_serving())
        return call(stream);
    submit_stream_ends(stream);
    uint64_t number = capture_before_end(stream, 0);
    CUresult result = call(stream);
    capture_after_destroy(stream, number, result);
    return result;
}

CUresult cuStreamDestroy(CUstream stream)
{
    return destroy_stream(real()->cuStreamDestroy, stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    return destroy_stream(real()->cuStreamDestroy_v2, stream);
}
