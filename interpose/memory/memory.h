/* Requests of the program: which context's allocator serves them, and what its frees mean. */
#ifndef CACHALOT_INTERPOSE_MEMORY_MEMORY_H
#define CACHALOT_INTERPOSE_MEMORY_MEMORY_H

#include "interpose/context/context.h"
#include "interpose/process/process.h"
#include "interpose/resolve/cuda_api.h"
#include "stats/os/direct.h"

/* Answer a request as the driver would, from the cache or by growing it, with the driver's
 * errors. */
DIRECT CUresult memory_alloc(CUdeviceptr *pointer, size_t bytes);
CUresult memory_alloc_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned element);
DIRECT CUresult memory_free(CUdeviceptr pointer);
CUresult memory_free_async(CUdeviceptr pointer, CUstream stream, int per_thread);
CUresult memory_info(size_t *available, size_t *total);

/* The address of a cached block of that size, or 0. hit_locked: with the allocator's lock. hit_again:
 * after memory_hit returned 0, looks further. */
DIRECT CUdeviceptr memory_hit_locked(struct allocator *allocator, size_t bytes);
CUdeviceptr memory_hit_again(size_t bytes);
static inline CUdeviceptr memory_hit(size_t bytes)
{
    const struct context *context = context_current();
    if (!context)
        return 0;
    return bytes <= MIB ? allocator_hit_alone(context->allocator, bytes)
                        : memory_hit_locked(context->allocator, bytes);
}

/* A free that came in through cudaFree. Returns 0: done; 1: let cudart pass it on, memory_free
 * answers it then. */
DIRECT int memory_free_early(CUdeviceptr pointer);
void memory_free_answered(void); /* cudart has returned */

/* Without a lock, tried first; returns 1: done. */
static inline int memory_free_alone(CUdeviceptr pointer)
{
    return process_serving() ? domain_free_alone(pointer) : 0;
}

/* The number of blocks freed after the program's exit had begun. */
uint64_t memory_late_frees(void);

/* After a call failed for want of memory: gives the cache back. Returns 1 if another try may
 * succeed. It waits for nothing if the cache could not help a call that takes `bytes` bytes of the
 * device, 0 if that is not known. host: they are the host's, and the device needs only page tables
 * for them. */
__attribute__((cold)) int memory_retry(uint64_t bytes, int host);

void memory_thread_ends(void); /* the calling thread's cache goes to the allocators */

#endif
