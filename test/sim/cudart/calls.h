/*
 * Defining functions of the runtime that are one expression on the driver's table `d`, with a
 * context current, and their per-thread default stream twins.
 */
#ifndef SIM_RUNTIME_CALLS_H
#define SIM_RUNTIME_CALLS_H

#include "runtime.h"

#define CALL(name, parameters, expression)                                                         \
    cudaError_t name parameters                                                                    \
    {                                                                                              \
        const struct runtime_driver *d = runtime_begin(0);                                         \
        return runtime_end(d ? (expression) : runtime_failed());                                   \
    }
#define CALL_TWIN(name, suffix, parameters, expression)                                            \
    CALL(name, parameters, expression)                                                             \
    cudaError_t name##suffix parameters;                                                           \
    cudaError_t name##suffix parameters                                                            \
    {                                                                                              \
        const struct runtime_driver *d = runtime_begin(1);                                         \
        return runtime_end(d ? (expression) : runtime_failed());                                   \
    }

#endif
