/* Macros that make an exported function which carries work to a stream, one line each. */
#ifndef CACHALOT_INTERPOSE_EXPORTS_SUBMIT_WRAPPER_H
#define CACHALOT_INTERPOSE_EXPORTS_SUBMIT_WRAPPER_H

#include "interpose/memory/retry.h"
#include "interpose/stream/submit.h"

/* The body of the exported function `name`. `stream` and `to_host` are expressions of its
 * parameters; to_host is evaluated after the call. `begun` runs after submit_begin. */
#define SUBMIT_BODY(kind, name, per_thread, stream, begun, to_host, arguments)                     \
    {                                                                                              \
        CUresult result;                                                                           \
        submit_begin(SUBMISSION_##kind, stream, per_thread);                                       \
        begun;                                                                                     \
        RETRIED(result, real_table.name arguments);                                                \
        submit_end(result, stream, per_thread, to_host);                                           \
        return result;                                                                             \
    }
#define SUBMIT_BEGUN(kind, name, per_thread, stream, begun, to_host, parameters, arguments)        \
    CUresult name parameters SUBMIT_BODY(kind, name, per_thread, stream, begun, to_host, arguments)
#define SUBMIT_TO_HOST(kind, name, per_thread, stream, to_host, parameters, arguments)             \
    SUBMIT_BEGUN(kind, name, per_thread, stream, (void)0, to_host, parameters, arguments)
#define SUBMIT(kind, name, per_thread, stream, parameters, arguments)                              \
    SUBMIT_TO_HOST(kind, name, per_thread, stream, 0, parameters, arguments)

/* The function and its per-thread twin, which have a parameter `stream`. */
#define SUBMIT_TWINS_TO_HOST(kind, name, to_host, parameters, arguments)                           \
    SUBMIT_TO_HOST(kind, name, 0, stream, to_host, parameters, arguments)                          \
    SUBMIT_TO_HOST(kind, name##_ptsz, 1, stream, to_host, parameters, arguments)
#define SUBMIT_TWINS(kind, name, parameters, arguments)                                            \
    SUBMIT_TWINS_TO_HOST(kind, name, 0, parameters, arguments)

/* The function and its per-thread twin in the default stream. The call itself waits for effects
 * that the host might see. */
#define SUBMIT_DEFAULT(kind, name, parameters, arguments)                                          \
    SUBMIT(kind, name, 0, NULL, parameters, arguments)                                             \
    SUBMIT(kind, name##_ptds, 1, NULL, parameters, arguments)

#endif
