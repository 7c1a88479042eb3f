/* Out of memory on purpose (option fail_alloc). */
#ifndef CACHALOT_INTERPOSE_MEMORY_REFUSE_H
#define CACHALOT_INTERPOSE_MEMORY_REFUSE_H

#include <stdint.h>

#include "interpose/process/process.h"

/* Counts a request of `bytes` bytes that the driver would not refuse for its arguments. Returns 1
 * if it is to fail with CUDA_ERROR_OUT_OF_MEMORY: then report and events name it, and the caller
 * asks nobody. While a capture is active nothing is counted: it stays as natively. */
int refuse_request(enum uncached_kind kind, uint64_t bytes);

static inline int refuses(enum uncached_kind kind, uint64_t bytes)
{
    return __builtin_expect(process.watched, 0) && refuse_request(kind, bytes);
}

#endif
