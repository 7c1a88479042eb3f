/* The device interface: every call of the allocator to a driver, and to the clock.
 *
 * interpose/context/device_ops.c implements it for CUDA; scripts/replay/device.c and
 * test/unit/fake_device.c implement it for simulated devices. Only segment_left, now_ns and thread_id
 * are called with the allocator's lock held, since any other call may block until the device makes progress.
 *
 * Results: 0 is success. Positive numbers are the driver's own error codes, which the program gets
 * unchanged. Negative numbers are the conditions below, which the allocator handles. */
#ifndef CACHALOT_ALLOCATOR_BASE_DEVICE_H
#define CACHALOT_ALLOCATOR_BASE_DEVICE_H

#include <stdint.h>

enum device_condition {
    DEVICE_NOT_READY = -1,   /* fence_query, fence_wait: work before the fence has not finished */
    DEVICE_DEFERRED = -2,    /* not now: the call would invalidate an active stream capture */
    DEVICE_UNSUPPORTED = -3, /* this driver has no such call */
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
    X(event, 260, "cuCtxRecordEvent")

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
    int out_of_memory; /* the driver's code for out of memory */
    const struct device_costs *costs;

    /* alloc: makes a range of `bytes` bytes in the context `device` and stores its address. free:
     * gives the range back; it waits for all work of the context. */
    int (*segment_alloc)(void *device, uint64_t bytes, uint64_t *address);
    int (*segment_free)(void *device, uint64_t address, uint64_t bytes);

    /* Notes that the program frees a range itself. Calls no driver; the lock is held. NULL: nothing
     * is to be noted. */
    void (*segment_left)(void *device, uint64_t bytes);

    /* Mapped memory. range_reserve stores a range of *bytes addresses, far more than the device has
     * memory. Without mapped memory it is NULL, or returns DEVICE_UNSUPPORTED. chunk_create makes a
     * handle of a multiple of 2 MiB. It may be mapped at multiples of 2 MiB in the range, also at
     * several addresses at once. chunk_allow makes mapped addresses usable. chunk_unmap waits for
     * no work. */
    int (*range_reserve)(void *device, uint64_t *address, uint64_t *bytes);
    int (*range_free)(void *device, uint64_t address, uint64_t bytes);
    int (*chunk_create)(void *device, uint64_t bytes, uint64_t *handle);
    int (*chunk_release)(void *device, uint64_t bytes, uint64_t handle);
    int (*chunk_map)(void *device, uint64_t address, uint64_t bytes, uint64_t handle);
    int (*chunk_allow)(void *device, uint64_t address, uint64_t bytes);
    int (*chunk_unmap)(void *device, uint64_t address, uint64_t bytes);

    /* record: records a context event, which has passed when all work submitted to the context
     * before it has finished. *event is NULL (an event is made) or an earlier one (recorded again).
     * query and wait return 0 once it has passed; wait does so within timeout_ns. */
    int (*fence_record)(void *device, void **event);
    int (*fence_query)(void *device, void *event);
    int (*fence_wait)(void *device, void *event, uint64_t timeout_ns);

    /* Records an event on a stream of our own, on which nothing runs. Returns 0, or a code as
     * fence_record does. NULL: there is no such stream. */
    int (*control_record)(void *device, void **event);

    /* Waits until all work submitted to the context has finished. */
    int (*synchronize)(void *device);

    /* Notes for the report that a call gave the driver's error `code`. Returns whether the context
     * can never recover from that error. */
    int (*failed)(void *device, int code);

    /* Stores the bytes that are free on the device, for all processes, and its total bytes. */
    int (*query_memory)(void *device, uint64_t *bytes, uint64_t *total);

    /* Asks other processes for idle memory of the device, and waits for a limited time. Returns how
     * many have given or have nothing to give. NULL: there are none. */
    int (*ask_others)(void *device, uint64_t bytes);

    uint64_t (*now_ns)(void);    /* monotonic */
    uint64_t (*thread_id)(void); /* of the caller; never 0 */
};

#endif
