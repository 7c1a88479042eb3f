/* Requests of the program: which context's allocator serves them, and what its frees mean. */
#ifndef CACHALOT_INTERPOSE_MEMORY_MEMORY_H
#define CACHALOT_INTERPOSE_MEMORY_MEMORY_H

#include "interpose/resolve/cuda_api.h"

/* The driver's answer to a request, from the cache or by growing it, with its errors as they are.
 */
CUresult memory_alloc(CUdeviceptr *pointer, size_t bytes);
CUresult memory_alloc_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned element);
CUresult memory_free(CUdeviceptr pointer);
CUresult memory_free_async(CUdeviceptr pointer, CUstream stream, int per_thread);
CUresult memory_info(size_t *available, size_t *total);

/* Only what is in the cache: the address, or 0. again: after that. */
CUdeviceptr memory_hit(size_t bytes);
CUdeviceptr memory_hit_again(size_t bytes);

/* A free from the runtime's door: 0 done; 1 let it enter cudart (whatever it is, memory_free
 * answers it there). */
int memory_free_early(CUdeviceptr pointer);
int memory_free_alone(CUdeviceptr pointer); /* without a lock, to be tried first: 1 done */
void memory_free_answered(void);            /* cudart has returned */

/* How many blocks were freed after the program's exit had begun. */
uint64_t memory_late_frees(void);

/* After the first try of some allocation failed for want of memory: gives our cache back, and says
 * whether to try once more. */
__attribute__((cold)) int memory_retry(void);

void memory_thread_ends(void); /* what the calling thread has cached is everybody's */

#endif
