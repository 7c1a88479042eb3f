/* Exported: kernels, graphs and functions of the host, put into a stream. */
#include "interpose/graphs.h"
#include "interpose/submit.h"

SUBMIT_TWINS(kernels, cuLaunchKernel,
             (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
              unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
              CUstream stream, void **parameters, void **extra),
             (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
SUBMIT_TWINS(kernels, cuLaunchCooperativeKernel,
             (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
              unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
              CUstream stream, void **parameters),
             (function, gx, gy, gz, bx, by, bz, shared, stream, parameters))
SUBMIT(kernels, cuLaunch, 0, NULL, (CUfunction function), (function))
SUBMIT(kernels, cuLaunchGrid, 0, NULL, (CUfunction function, int width, int height),
       (function, width, height))
SUBMIT(kernels, cuLaunchGridAsync, 0, stream,
       (CUfunction function, int width, int height, CUstream stream),
       (function, width, height, stream))

/* May the kernel, or what follows it, begin before what it follows has ended? */
static enum submission_order order_of(const CUlaunchConfig *config)
{
    if (!config->attrs)
        return IN_ORDER;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
            (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
             attribute->value.programmaticStreamSerializationAllowed))
            return PROGRAMMATIC;
    }
    return IN_ORDER;
}

#define LAUNCH_EX(name, per_thread)                                                                \
    CUresult name(const CUlaunchConfig *config, CUfunction function, void **parameters,            \
                  void **extra)                                                                    \
    {                                                                                              \
        CUresult result;                                                                           \
        int tries = 0;                                                                             \
        if (!config) /* the driver says what it says */                                            \
            return real()->name(config, function, parameters, extra);                              \
        submit_begin(SUBMISSION_kernels, config->hStream, per_thread, order_of(config));           \
        RETRIED(result, real()->name(config, function, parameters, extra));                        \
        submit_end(result, config->hStream, per_thread, 0);                                        \
        return result;                                                                             \
    }
LAUNCH_EX(cuLaunchKernelEx, 0)
LAUNCH_EX(cuLaunchKernelEx_ptsz, 1)

/* One kernel on each of several devices, each in its own stream. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count,
                                              unsigned int flags)
{
    CUresult result;
    int tries = 0;
    if (!launches)
        return real()->cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    for (unsigned i = 0; i < count; i++)
        submit_begin(SUBMISSION_kernels, launches[i].hStream, 0, IN_ORDER);
    RETRIED(result, real()->cuLaunchCooperativeKernelMultiDevice(launches, count, flags));
    for (unsigned i = 0; i < count; i++)
        submit_end(result, launches[i].hStream, 0, 0);
    return result;
}

SUBMIT_TWINS_TO_HOST(graphs, cuGraphLaunch, graphs_to_host(exec),
                     (CUgraphExec exec, CUstream stream), (exec, stream))
SUBMIT_TWINS(others, cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, stream))

SUBMIT_TWINS_TO_HOST(host_functions, cuLaunchHostFunc, 1,
                     (CUstream stream, CUhostFn function, void *data), (stream, function, data))
SUBMIT_TWINS_TO_HOST(host_functions, cuLaunchHostFunc_v2, 1,
                     (CUstream stream, CUhostFn function, void *data, unsigned int mode),
                     (stream, function, data, mode))
SUBMIT_TWINS_TO_HOST(host_functions, cuStreamAddCallback, 1,
                     (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags),
                     (stream, callback, data, flags))
