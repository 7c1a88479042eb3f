/*
 * The stand-in kernel by every way to launch it, and functions of the host.
 */
#include "call.h"
#include "capture.h"
#include "config.h"
#include "context.h"
#include "memory.h"
#include "sim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const char function_handle[] = "cachalot-sim stand-in kernel";

CUfunction cachalot_sim_function(void)
{
    return (CUfunction)(uintptr_t)function_handle;
}

static CUresult kernel_work(struct sim_work *work, CUfunction function, void **parameters,
                            const char *call)
{
    if (function != cachalot_sim_function() || !parameters || !parameters[0])
        return CUDA_ERROR_INVALID_HANDLE;
    const struct cachalot_sim_kernel *kernel = parameters[0];
    *work = (struct sim_work){.kind = WORK_KERNEL,
                              .call = call,
                              .ns = kernel->ns,
                              .spin = kernel->spin,
                              .signal = kernel->signal};
    work->visible = kernel->signal || kernel->spin;
    for (size_t i = 0; i < kernel->range_count; i++) {
        const struct cachalot_sim_range *range = &kernel->ranges[i];
        work_add_range(work, (struct sim_range){range->address, range->bytes, 0, 1, range->writes});
    }
    return CUDA_SUCCESS;
}

static CUresult kernel_submit(CUstream handle, CUfunction function, void **parameters,
                              const char *call)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    struct sim_work work;
    result = kernel_work(&work, function, parameters, call);
    return result ? result : stream_submit(stream, &work, NULL);
}

CUresult do_cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                           unsigned by, unsigned bz, unsigned shared, CUstream stream,
                           void **parameters, void **extra)
{
    const unsigned shape[] = {gx, gy, gz, bx, by, bz, shared};
    (void)extra;
    if (parameters && parameters[0]) {
        const struct cachalot_sim_kernel *kernel = parameters[0];
        if (kernel->shape && memcmp(kernel->shape, shape, sizeof shape) != 0)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return kernel_submit(stream, f, parameters, "cuLaunchKernel");
}

CUresult do_cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                      unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                      CUstream stream, void **parameters)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
    return kernel_submit(stream, f, parameters, "cuLaunchCooperativeKernel");
}

/* All streams are looked at before any gets work. */
CUresult do_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned count,
                                                 unsigned flags)
{
    (void)flags;
    CUresult result = launches && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && !result; i++)
        if (!launches[i].hStream || !stream_from(launches[i].hStream, &result))
            result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && !result; i++)
        result = kernel_submit(launches[i].hStream, launches[i].function, launches[i].kernelParams,
                               "cuLaunchCooperativeKernelMultiDevice");
    return result;
}

static int launch_is_programmatic(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
            config->attrs[i].value.programmaticStreamSerializationAllowed)
            return 1;
    return 0;
}

/* Behind what is before the last piece of its own stream. Where that is such a launch too, behind
 * what that one is behind: nobody says that it waited for more. */
static void find_beside(struct sim_stream *stream)
{
    const struct sim_queue *own = stream->queue;
    if (own->head && own->tail->number == stream->beside_number)
        return;
    stream->beside_clock.count = 0;
    clock_merge(&stream->beside_clock, &own->clock);
    stream->beside_point = (struct sim_point){0, 0};
    if (own->head) {
        stream->beside_point = (struct sim_point){own->slot, own->tail->number - 1};
        stream->beside_clock.at[own->slot] = own->tail->number - 1;
    }
}

/* Starts beside the last piece of its own stream; what follows on the stream waits for both. */
static CUresult launch_beside(struct sim_stream *stream, struct sim_work *work)
{
    struct sim_queue *beside = queue_new(QUEUE_FREE, stream->context, stream);
    find_beside(stream);
    struct sim_point point =
        engine_submit(beside, work, &stream->beside_point, &stream->beside_clock);
    struct sim_work join = {.kind = WORK_WAIT, .call = "programmatic launch"};
    stream->beside_number = engine_submit(stream->queue, &join, &point, &beside->clock).number;
    queue_drop(beside);
    return CUDA_SUCCESS;
}

CUresult do_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters,
                             void **extra)
{
    (void)extra;
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(config->hStream, &result);
    if (!stream)
        return result;
    struct sim_work work;
    result = kernel_work(&work, f, parameters, "cuLaunchKernelEx");
    if (result)
        return result;
    if (!launch_is_programmatic(config) || stream->capture || stream == stream->context->legacy)
        return stream_submit(stream, &work, NULL);
    return launch_beside(stream, &work);
}

CUresult do_cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = WORK_HOST,
                            .call = "cuLaunchHostFunc",
                            .host = function,
                            .host_data = data,
                            .visible = 1};
    return stream_submit(stream, &work, NULL);
}

struct callback {
    CUstreamCallback function;
    CUstream stream;
    void *data;
};

static void callback_run(void *data)
{
    struct callback callback = *(struct callback *)data;
    free(data);
    callback.function(callback.stream, CUDA_SUCCESS, callback.data);
}

/* Unlike a host function it cannot be captured. */
CUresult do_cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *data,
                                unsigned flags)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (!function || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) {
        stream->capture->invalid = 1;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    struct callback *callback = malloc(sizeof(*callback));
    if (!callback)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){function, handle, data};
    struct sim_work work = {.kind = WORK_HOST,
                            .call = "cuStreamAddCallback",
                            .host = callback_run,
                            .host_data = callback,
                            .visible = 1};
    result = stream_submit(stream, &work, NULL);
    if (result)
        free(callback);
    return result;
}
