/* The allocator's device (allocator/base/device.h) by way of the real driver. `device` is a struct
 * context. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_DEVICE_OPS_H
#define CACHALOT_INTERPOSE_CONTEXT_DEVICE_OPS_H

#include "allocator/base/device.h"
#include "interpose/context/context.h"

extern const struct device_ops driver_ops;

/* Has what SYNC_MEMOPS says hold for all memory of the context, since the driver refuses it for
 * single mappings: synchronous copies and sets are done when they return. What had returned before
 * is waited for, once and for 2 s at most. CUDA_ERROR_NOT_FOUND: a driver before 12.1. */
CUresult driver_sync_memops(struct context *context);

#endif
