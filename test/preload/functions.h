/* The driver's functions by address, for programs that look them up; and what is done with them:
 * 6 requests, 5 frees, one request and one free of a pool. */
#ifndef PRELOAD_FUNCTIONS_H
#define PRELOAD_FUNCTIONS_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "case.h"

struct functions {
    __typeof__(cuInit) *init;
    __typeof__(cuDevicePrimaryCtxRetain) *retain;
    __typeof__(cuCtxSetCurrent) *set_current;
    __typeof__(cuMemAlloc_v2) *alloc;
    __typeof__(cuMemFree_v2) *free;
    __typeof__(cuMemAllocAsync) *alloc_async;
    __typeof__(cuMemFreeAsync) *free_async;
};

static inline void use(const struct functions *f)
{
    static const size_t sizes[] = {1, 1000, 1 << 20, 3 << 20, 30 << 20};
    CUcontext context;
    CUdeviceptr block[5], again, pooled;
    OK(f->init(0));
    OK(f->retain(&context, 0));
    OK(f->set_current(context));
    for (int i = 0; i < 5; i++)
        OK(f->alloc(&block[i], sizes[i]));
    for (int i = 0; i < 5; i++)
        OK(f->free(block[i]));
    SAY(f->alloc(&again, 1000));
    SAY(f->alloc_async(&pooled, 4096, NULL));
    SAY(f->free_async(pooled, NULL));
}

#endif
