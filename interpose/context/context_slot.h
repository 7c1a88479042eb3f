/* What we know of a context: context.c writes it, and who serves the context reads it. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_CONTEXT_SLOT_H
#define CACHALOT_INTERPOSE_CONTEXT_CONTEXT_SLOT_H

#include "allocator/allocator.h"
#include "interpose/resolve/cuda_api.h"
#include "stats/page/page.h"

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

/* Of context.c, for context_make.c. make: takes the current context, whose handle this is, on the
 * books; NULL: it must be left to the driver. The caller holds the lock of the device's primary
 * context: one that still answers is not ended meanwhile by another thread. slot_of: caller holds
 * the context lock; of NULL a free one. active_primary: the handle; retaining it costs a reference
 * for a moment only, and does not make it, since it is active. NULL: the driver does not say. */
struct context *context_make(CUcontext handle);
struct context *context_slot_of(CUcontext handle);
CUcontext context_active_primary(CUdevice device);

#endif
