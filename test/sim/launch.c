/*
 * Work that is not a copy: the stand-in kernel, host functions, stream memory operations.
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
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    return kernel_submit(stream, f, parameters, "cuLaunchKernel");
}

CUresult do_cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                      unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                      CUstream stream, void **parameters)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
    return kernel_submit(stream, f, parameters, "cuLaunchCooperativeKernel");
}

static int launch_is_programmatic(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
            config->attrs[i].value.programmaticStreamSerializationAllowed)
            return 1;
    return 0;
}

/* Starts beside the last piece of its own stream; what follows on the stream waits for both. */
static CUresult launch_beside(struct sim_stream *stream, struct sim_work *work)
{
    const struct sim_queue *own = stream->queue;
    struct sim_queue *beside = queue_new(QUEUE_FREE, stream->context, stream);
    struct sim_point before = {0, 0};
    struct sim_clock clock = {NULL, 0};
    clock_merge(&clock, &own->clock);
    if (own->head) {
        before = (struct sim_point){own->slot, own->tail->number - 1};
        clock.at[own->slot] = before.number;
    }
    struct sim_point point = engine_submit(beside, work, &before, &clock);
    struct sim_work join = {.kind = WORK_WAIT, .call = "programmatic launch"};
    engine_submit(stream->queue, &join, &point, &beside->clock);
    queue_drop(beside);
    free(clock.at);
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

CUresult do_cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data,
                                unsigned flags)
{
    (void)stream, (void)callback, (void)data, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult value_submit(CUstream handle, CUdeviceptr address, uint64_t value, unsigned bytes,
                             unsigned flags, int writes, const char *call)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (address % bytes || !memory_find(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = WORK_VALUE,
                            .call = call,
                            .value_address = address,
                            .value = value,
                            .value_bytes = bytes,
                            .value_flags = flags,
                            .value_writes = writes,
                            .visible = 1};
    return stream_submit(stream, &work, NULL);
}

#define VALUE(name, type, writes)                                                                  \
    CUresult do_##name(CUstream stream, CUdeviceptr address, type value, unsigned flags)           \
    {                                                                                              \
        return value_submit(stream, address, value, sizeof(type), flags, writes, #name);           \
    }
VALUE(cuStreamWaitValue32_v2, cuuint32_t, 0)
VALUE(cuStreamWriteValue32_v2, cuuint32_t, 1)
VALUE(cuStreamWaitValue64_v2, cuuint64_t, 0)
VALUE(cuStreamWriteValue64_v2, cuuint64_t, 1)

static CUresult batch_one(CUstream stream, const CUstreamBatchMemOpParams *op)
{
    const char *call = "cuStreamBatchMemOp";
    switch (op->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return value_submit(stream, op->waitValue.address, op->waitValue.value, 4,
                            op->waitValue.flags, 0, call);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return value_submit(stream, op->writeValue.address, op->writeValue.value, 4, 0, 1, call);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return value_submit(stream, op->waitValue.address, op->waitValue.value64, 8,
                            op->waitValue.flags, 0, call);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return value_submit(stream, op->writeValue.address, op->writeValue.value64, 8, 0, 1, call);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult do_cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops,
                                  unsigned flags)
{
    (void)flags;
    CUresult result = count && !ops ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (unsigned i = 0; i < count && !result; i++)
        result = batch_one(stream, &ops[i]);
    return result;
}

static CUresult touch_submit(CUstream handle, CUdeviceptr address, size_t bytes, const char *call)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    struct sim_memory *memory = memory_find(address, 1);
    if (!memory || memory->kind != MEMORY_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = WORK_COPY, .call = call, .ns = config()->latency_ns};
    work_add_range(&work, (struct sim_range){address, bytes, 0, 1, 0});
    return stream_submit(stream, &work, NULL);
}

CUresult do_cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    (void)device;
    return touch_submit(stream, address, bytes, "cuMemPrefetchAsync");
}

CUresult do_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                                  unsigned flags, CUstream stream)
{
    (void)location, (void)flags;
    return touch_submit(stream, address, bytes, "cuMemPrefetchAsync");
}

CUresult do_cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes,
                                   unsigned flags)
{
    (void)flags;
    return touch_submit(stream, address, bytes ? bytes : 1, "cuStreamAttachMemAsync");
}
