/* What we know of a context: context.c writes it, and who serves the context reads it. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_SLOT_H
#define CACHALOT_INTERPOSE_CONTEXT_SLOT_H

#include "allocator/allocator.h"
#include "interpose/cuda_api.h"
#include "stats/page.h"

#define MOST_CONTEXTS 256

struct context {
    CUcontext handle; /* NULL: slot free */
    CUdevice device;
    int primary;
    _Atomic int suspended; /* its release is under way, or its end: serve nothing */
    uint64_t ender;        /* thread in the driver's call that ends it */
    uint64_t last_capture; /* before that */
    struct allocator *allocator;
    struct page_device *row;
};

#endif
