/* The seam to the device: all that the allocator asks of a driver, and of the clock.
 *
 * Implemented by interpose/context/device_ops.c for CUDA, and for devices made of bookkeeping by
 * scripts/replay/device.c and test/unit/fake_device.c. None of these but now_ns and thread_id is called
 * with the allocator's lock held, since any of them may block until the device gets on.
 *
 * Results: 0 is success, positive numbers are the driver's own error codes (passed on to the
 * program as they are), negative ones are the conditions below, which the allocator handles.
 */
#ifndef CACHALOT_ALLOCATOR_BASE_DEVICE_H
#define CACHALOT_ALLOCATOR_BASE_DEVICE_H

#include <stdint.h>

enum device_condition {
    DEVICE_NOT_READY = -1,   /* fence_query, fence_wait: work before the fence is not finished */
    DEVICE_DEFERRED = -2,    /* not now: a stream capture is active and would be invalidated */
    DEVICE_UNSUPPORTED = -3, /* this driver cannot */
};

#define DEVICE_FOREVER UINT64_MAX

/* What calls of the driver take, in ns: medians on an H200, driver 580 (test/gpu/RECORD.md). A call for a handle
 * takes as long whatever its size; `..._mib` is added for each MiB. The allocator decides by these prices, and
 * cachalot-replay books calls at them.  X(name, ns, what it is) */
#define DEVICE_COSTS(X)                                                                            \
    X(create, 22500, "cuMemCreate")                                                                \
    X(map, 900, "cuMemMap")                                                                        \
    X(access, 33000, "cuMemSetAccess")                                                             \
    X(unmap, 22000, "cuMemUnmap")                                                                  \
    X(release, 24000, "cuMemRelease")                                                              \
    X(alloc, 41000, "cuMemAlloc")                                                                  \
    X(alloc_mib, 250, "cuMemAlloc, for each MiB")                                                  \
    X(free, 39000, "cuMemFree")                                                                    \
    X(free_mib, 650, "cuMemFree, for each MiB")                                                    \
    X(event, 260, "cuCtxRecordEvent")                                                              \
    X(question, 4900, "cuMemGetInfo")

struct device_costs {
#define X(name, ns, what) uint64_t name;
    DEVICE_COSTS(X)
#undef X
};

/* The default (policy.c), which `cachalot-replay --policy price_NAME=NS` changes. */
extern struct device_costs device_costs;

/* Making a handle that can be used. */
static inline uint64_t device_handle_ns(const struct device_costs *costs)
{
    return costs->create + costs->map + costs->access;
}

/* In us, rounded; at least 1. */
static inline uint64_t device_us(uint64_t ns)
{
    return ns < 1500 ? 1 : (ns + 500) / 1000;
}

struct device_ops {
    int out_of_memory; /* the driver's code for it */
    const struct device_costs *costs;

    /* One range of `bytes` bytes of the context `device`; its address. */
    int (*segment_alloc)(void *device, uint64_t bytes, uint64_t *address);
    int (*segment_free)(void *device, uint64_t address);

    /* Mapped memory. range_reserve is NULL where there is none, or answers DEVICE_UNSUPPORTED: a
     * range of `bytes` addresses, far more than the device's memory. Chunks are
     * multiples of 2 MiB, and mapped at any multiple of it in the range, at several addresses at
     * once where wanted; chunk_allow makes what is mapped usable; chunk_unmap waits for no work.
     */
    int (*range_reserve)(void *device, uint64_t *address, uint64_t *bytes);
    int (*range_free)(void *device, uint64_t address, uint64_t bytes);
    int (*chunk_create)(void *device, uint64_t bytes, uint64_t *handle);
    int (*chunk_release)(void *device, uint64_t bytes, uint64_t handle);
    int (*chunk_map)(void *device, uint64_t address, uint64_t bytes, uint64_t handle);
    int (*chunk_allow)(void *device, uint64_t address, uint64_t bytes);
    int (*chunk_unmap)(void *device, uint64_t address, uint64_t bytes);

    /* Marks this point in time: passed when all work submitted to the context before is finished.
     * *event is NULL (one is made) or one made earlier (marked anew). */
    int (*fence_record)(void *device, void **event);
    int (*fence_query)(void *device, void *event);
    int (*fence_wait)(void *device, void *event, uint64_t timeout_ns);

    /* Waits until all work submitted to the context is finished. */
    int (*synchronize)(void *device);

    /* A query or wait gave the driver's error `code`: notes it for whoever reads the report. Is it
     * one that the context never gets over? */
    int (*failed)(void *device, int code);

    /* Bytes free on the device now, for all processes, and all that it has. */
    int (*memory_free)(void *device, uint64_t *bytes, uint64_t *total);

    uint64_t (*now_ns)(void);    /* monotonic */
    uint64_t (*thread_id)(void); /* of the caller; never 0 */
};

#endif
