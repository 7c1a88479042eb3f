/*
 * The thread's current context, and questions about contexts.
 */
#include "call.h"
#include "capture.h"
#include "config.h"
#include "context.h"

CUresult do_cuCtxPushCurrent_v2(CUcontext handle)
{
    struct sim_context *context = context_from(handle);
    struct sim_thread *thread = thread_self();
    if (!context || thread->depth == SIM_CONTEXT_DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->stack[thread->depth++] = context;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxPopCurrent_v2(CUcontext *out)
{
    struct sim_thread *thread = thread_self();
    if (thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->depth--;
    if (out)
        *out = (CUcontext)thread->stack[thread->depth];
    return CUDA_SUCCESS;
}

CUresult do_cuCtxSetCurrent(CUcontext handle)
{
    struct sim_context *context = context_from(handle);
    struct sim_thread *thread = thread_self();
    if (handle && !context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (thread->depth)
        thread->depth--;
    if (context)
        thread->stack[thread->depth++] = context;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxGetCurrent(CUcontext *out)
{
    const struct sim_thread *thread = thread_self();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = thread->depth ? (CUcontext)thread->stack[thread->depth - 1] : NULL;
    return CUDA_SUCCESS;
}

/* NULL means the current one. */
static struct sim_context *context_named(CUcontext handle, CUresult *why)
{
    *why = CUDA_ERROR_INVALID_CONTEXT;
    return handle ? context_from(handle) : context_current(why);
}

CUresult do_cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    CUresult why;
    const struct sim_context *context = context_named(handle, &why);
    if (!context || !device)
        return context ? CUDA_ERROR_INVALID_VALUE : why;
    *device = context->device;
    return CUDA_SUCCESS;
}

/* Of a primary context that has ended it still answers, as long as that is current (580). */
CUresult do_cuCtxGetDevice(CUdevice *device)
{
    const struct sim_thread *thread = thread_self();
    const struct sim_context *context = thread->depth ? thread->stack[thread->depth - 1] : NULL;
    if (!context || !context->primary || !device)
        return do_cuCtxGetDevice_v2(device, NULL);
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxSynchronize_v2(CUcontext handle)
{
    CUresult result;
    struct sim_context *context = context_named(handle, &result);
    if (!context)
        return result;
    result = capture_forbids_context(context);
    if (!result)
        context_wait(context);
    return result;
}

CUresult do_cuCtxSynchronize(void)
{
    return do_cuCtxSynchronize_v2(NULL);
}

CUresult do_cuCtxGetApiVersion(CUcontext handle, unsigned *version)
{
    CUresult why;
    if (!context_named(handle, &why) || !version)
        return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxGetFlags(unsigned *flags)
{
    CUresult why;
    const struct sim_context *context = context_current(&why);
    if (!context || !flags)
        return context ? CUDA_ERROR_INVALID_VALUE : why;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxSetFlags(unsigned flags)
{
    CUresult why;
    struct sim_context *context = context_current(&why);
    if (!context || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return context ? CUDA_ERROR_INVALID_VALUE : why;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    CUresult why;
    const struct sim_context *context = context_named(handle, &why);
    if (!context || !id)
        return context ? CUDA_ERROR_INVALID_VALUE : why;
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxGetLimit(size_t *value, CUlimit limit)
{
    CUresult why;
    (void)limit;
    if (!context_current(&why) || !value)
        return value ? why : CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult do_cuCtxSetLimit(CUlimit limit, size_t value)
{
    CUresult why = CUDA_SUCCESS;
    (void)limit, (void)value;
    context_current(&why);
    return why;
}

CUresult do_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

/* All memory is everybody's here: only the answers are kept right. */
CUresult do_cuCtxEnablePeerAccess(CUcontext handle, unsigned flags)
{
    CUresult why = CUDA_SUCCESS;
    const struct sim_context *peer = context_from(handle), *context = context_current(&why);
    if (!context)
        return why;
    if (!peer || peer == context || flags)
        return CUDA_ERROR_INVALID_CONTEXT;
    return config()->peers ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult do_cuCtxDisablePeerAccess(CUcontext handle)
{
    return context_from(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult do_cuProfilerStart(void)
{
    return CUDA_SUCCESS;
}

CUresult do_cuProfilerStop(void)
{
    return CUDA_SUCCESS;
}
