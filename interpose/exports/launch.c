/* Exported: kernels, graphs and host functions put into a stream. */
#include "interpose/stream/graph_contents.h"
#include "interpose/exports/submit_wrapper.h"

#define LAUNCH_PARAMETERS                                                                          \
    (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,      \
     unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **parameters,    \
     void **extra)
#define LAUNCH_ARGUMENTS (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra)

/* The hottest wrapper. The rare second try needs all arguments after the driver's call. Kept in
 * registers, each would cost a push and a pop per launch; so register arguments are stored in
 * volatile variables, and stack arguments stay where they are. */
#define LAUNCH(name, per_thread)                                                                   \
    __attribute__((cold, noinline)) static CUresult name##_put LAUNCH_PARAMETERS SUBMIT_BODY(      \
        kernels, name, per_thread, stream, (void)0, 0, LAUNCH_ARGUMENTS)                           \
                                                                                                   \
        __attribute__((cold, noinline)) static CUresult name##_again(                              \
            struct lane_thread *self, CUfunction function, unsigned int gx, unsigned int gy,       \
            unsigned int gz, unsigned int bx, unsigned int by, const unsigned int *bz,             \
            const unsigned int *shared, const CUstream *stream, void **const *parameters,          \
            void **const *extra)                                                                   \
    {                                                                                              \
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                \
        if (memory_retry(0, 0))                                                                    \
            result = real_table.name(function, gx, gy, gz, bx, by, *bz, *shared, *stream,          \
                                     *parameters, *extra);                                         \
        return submit_seen_end(self, result);                                                      \
    }                                                                                              \
                                                                                                   \
    CUresult name LAUNCH_PARAMETERS                                                                \
    {                                                                                              \
        struct lane_thread *self = submit_seen(SUBMISSION_kernels, stream, per_thread);            \
        if (__builtin_expect(!self, 0))                                                            \
            return name##_put LAUNCH_ARGUMENTS;                                                    \
        const volatile CUfunction kept = function;                                                 \
        const volatile unsigned int x = gx, y = gy, z = gz, in_x = bx, in_y = by;                  \
        CUresult result = real_table.name LAUNCH_ARGUMENTS;                                        \
        if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0))                               \
            return name##_again(self, kept, x, y, z, in_x, in_y, &bz, &shared, &stream,            \
                                &parameters, &extra);                                              \
        return submit_seen_end(self, result);                                                      \
    }
LAUNCH(cuLaunchKernel, 0)
LAUNCH(cuLaunchKernel_ptsz, 1)

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

static int is_programmatic(const CUlaunchAttribute *attribute)
{
    return attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
           attribute->value.programmaticStreamSerializationAllowed;
}

#define MOST_ATTRIBUTES 64 /* several times the number of attribute kinds */

/* How many attributes to copy so that the kernel cannot overtake earlier work; 0 if it cannot
 * anyway. */
static unsigned attributes_to_copy(const CUlaunchConfig *config)
{
    if (!config->attrs || config->numAttrs > MOST_ATTRIBUTES)
        return 0;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (is_programmatic(&config->attrs[i]))
            return config->numAttrs;
    return 0;
}

typedef CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **parameters,
                           void **extra);

__attribute__((noinline)) static CUresult launch_in_order(launch_ex *call, unsigned copied,
                                                          const CUlaunchConfig *config,
                                                          CUfunction function, void **parameters,
                                                          void **extra)
{
    CUlaunchAttribute attributes[MOST_ATTRIBUTES];
    CUlaunchConfig changed = *config;
    changed.attrs = attributes;
    for (unsigned i = 0; i < copied; i++) {
        attributes[i] = config->attrs[i];
        if (is_programmatic(&attributes[i]))
            attributes[i].value.programmaticStreamSerializationAllowed = 0;
    }
    return call(&changed, function, parameters, extra);
}

#define LAUNCH_EX(name, per_thread)                                                                \
    CUresult name(const CUlaunchConfig *config, CUfunction function, void **parameters,            \
                  void **extra)                                                                    \
    {                                                                                              \
        CUresult result;                                                                           \
        if (!config) /* the driver gives the error */                                              \
            return real()->name(config, function, parameters, extra);                              \
        int in_order = submit_begin(SUBMISSION_kernels, config->hStream, per_thread);              \
        unsigned copied = in_order ? attributes_to_copy(config) : 0;                               \
        RETRIED(result, copied ? launch_in_order(real_table.name, copied, config, function,        \
                                                 parameters, extra)                                \
                               : real_table.name(config, function, parameters, extra));            \
        if (in_order && result == CUDA_SUCCESS)                                                    \
            submit_was_in_order(config->hStream, per_thread);                                      \
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
    if (!launches)
        return real()->cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    for (unsigned i = 0; i < count; i++)
        submit_begin(SUBMISSION_kernels, launches[i].hStream, 0);
    RETRIED(result, real()->cuLaunchCooperativeKernelMultiDevice(launches, count, flags));
    if (count)
        submit_end(result, launches[0].hStream, 0, 0); /* once: this is one call in flight */
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
