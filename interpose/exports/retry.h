/* Once more after out of memory: whatever fails may have failed because our cache holds the memory.
 */
#ifndef CACHALOT_INTERPOSE_EXPORTS_RETRY_H
#define CACHALOT_INTERPOSE_EXPORTS_RETRY_H

#include "interpose/memory/memory.h"
#include "interpose/resolve/real_driver.h"

/* Calls the real function again, once, if it failed while our cache held memory. `tries` is 0. */
#define RETRIED(result, call)                                                                      \
    do                                                                                             \
        (result) = (call);                                                                         \
    while (__builtin_expect((result) == CUDA_ERROR_OUT_OF_MEMORY, 0) && !tries++ && memory_retry())

/* An exported function that only needs the second try. */
#define RETRY(name, parameters, arguments)                                                         \
    CUresult name parameters                                                                       \
    {                                                                                              \
        CUresult result;                                                                           \
        int tries = 0;                                                                             \
        RETRIED(result, real()->name arguments);                                                   \
        return result;                                                                             \
    }

#endif
