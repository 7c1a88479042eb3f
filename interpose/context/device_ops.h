/* The allocator's device (allocator/base/device.h) on the real driver. `device` is a struct
 * context. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_DEVICE_OPS_H
#define CACHALOT_INTERPOSE_CONTEXT_DEVICE_OPS_H

#include "allocator/base/device.h"
#include "interpose/resolve/cuda_api.h"

struct context;

extern const struct device_ops driver_ops;

/* Around a call of our own: makes a context current, and relaxes this thread's capture mode, so that
 * the call invalidates no capture. After an error of enter there is nothing to leave. */
struct driver_visit {
    int pushed;
    CUstreamCaptureMode mode;
};
CUresult driver_enter(CUcontext handle, struct driver_visit *visit);
void driver_leave(struct driver_visit *visit);

/* Is this an error from which a context never recovers? */
int driver_is_lasting(int code);

/* As driver_ops.query_memory, whatever the group's limit. */
int driver_memory(const struct context *context, uint64_t *bytes, uint64_t *total);

/* Sets SYNC_MEMOPS for all memory of the context, since the driver refuses it for single mappings:
 * synchronous copies and sets are complete when they return. Operations that returned earlier are
 * waited for, once and 2 s at most. CUDA_ERROR_NOT_FOUND: the driver is older than 12.1. */
CUresult driver_sync_memops(struct context *context);

/* Fills memory of the context that no work uses with a 32-bit word, on a stream of our own, and
 * waits. Bytes behind the last word, and memory that begins between words, get the low byte. Returns 0, DEVICE_NOT_READY after `timeout_ns`, or the driver's
 * error. */
int driver_fill(struct context *context, uint64_t address, uint64_t bytes, uint32_t word,
                uint64_t timeout_ns);

/* Copies bytes of the context to memory of the host that is not pinned, on a stream of our own, and
 * waits for the copy alone. Returns 0 or the driver's error. */
int driver_read(struct context *context, uint64_t address, uint64_t bytes, void *to);

/* Ends an event that fence_record has made. */
void driver_fence_destroy(void *device, void *event);

#endif
