/* The second try after out of memory: any call may have failed because our cache holds the
 * memory. */
#ifndef CACHALOT_INTERPOSE_MEMORY_RETRY_H
#define CACHALOT_INTERPOSE_MEMORY_RETRY_H

#include "interpose/memory/memory.h"
#include "interpose/resolve/real_driver.h"

/* result = call; and once more if that failed while our cache held memory that could help
 * (memory_retry has `bytes` and `host`). `call` is expanded twice: it must not change its own
 * operands. RETRIED: how much memory the call takes is not known. */
#define RETRIED_FOR(result, bytes, host, call)                                                     \
    do {                                                                                           \
        (result) = (call);                                                                         \
        if (__builtin_expect((result) == CUDA_ERROR_OUT_OF_MEMORY, 0) &&                           \
            memory_retry(bytes, host))                                                             \
            (result) = (call);                                                                     \
    } while (0)
#define RETRIED(result, call) RETRIED_FOR(result, 0, 0, call)

#endif
