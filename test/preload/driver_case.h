/* For programs that are linked to the (simulated) driver. */
#ifndef PRELOAD_DRIVER_CASE_H
#define PRELOAD_DRIVER_CASE_H

#include "case.h"
#include "sim.h"

#include <string.h>

/* The primary context of device 0, current. */
static inline CUcontext begin(void)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

/* A context of the program's own, current. */
static inline CUresult create_context(CUcontext *context, CUdevice device)
{
#if CUDA_VERSION >= 13000
    return cuCtxCreate_v4(context, NULL, 0, device);
#else
    return cuCtxCreate_v2(context, 0, device);
#endif
}

static inline CUcontext new_context(CUdevice device)
{
    CUcontext context;
    OK(create_context(&context, device));
    return context;
}

/* destroy, or of the primary context of device 0: reset, release. */
static inline void end_context(const char *how, CUcontext context)
{
    if (!strcmp(how, "destroy"))
        OK(cuCtxDestroy(context));
    else if (!strcmp(how, "reset"))
        OK(cuDevicePrimaryCtxReset(0));
    else
        OK(cuDevicePrimaryCtxRelease(0));
}

static inline CUdeviceptr make(size_t bytes)
{
    CUdeviceptr pointer;
    OK(cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}

/* A stand-in kernel of `ns` that writes the whole block. */
static inline void write_all(CUstream stream, uint64_t ns, CUdeviceptr pointer, size_t bytes)
{
    struct cachalot_sim_range range = {pointer, bytes, 1};
    OK(cachalot_sim_launch(stream, ns, &range, 1));
}

#endif
