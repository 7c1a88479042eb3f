/* The second try after out of memory: any call may have failed because our cache holds the
 * memory. */
#ifndef CACHALOT_INTERPOSE_MEMORY_RETRY_H
#define CACHALOT_INTERPOSE_MEMORY_RETRY_H

#include "interpose/memory/memory.h"
#include "interpose/resolve/real_driver.h"

/* result = call; and once more if that failed while our cache held memory. `call` is expanded
 * twice: it must not change its own operands. */
#define RETRIED(result, call)                                                                      \
    do {                                                                                           \
        (result) = (call);                                                                         \
        if (__builtin_expect((result) == CUDA_ERROR_OUT_OF_MEMORY, 0) && memory_retry())           \
            (result) = (call);                                                                     \
    } while (0)

#endif
