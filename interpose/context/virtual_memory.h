/* The part of driver_ops (device_ops.h) that maps memory. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_VIRTUAL_MEMORY_H
#define CACHALOT_INTERPOSE_CONTEXT_VIRTUAL_MEMORY_H

#include <stdint.h>

#include "allocator/base/device.h"
#include "interpose/resolve/cuda_api.h"

#define PEER_DEVICES 64

int driver_range_reserve(void *device, uint64_t *address, uint64_t *bytes);
int driver_range_free(void *device, uint64_t address, uint64_t bytes);
int driver_chunk_create(void *device, uint64_t bytes, uint64_t *handle);
int driver_chunk_release(void *device, uint64_t bytes, uint64_t handle);
int driver_chunk_map(void *device, uint64_t address, uint64_t bytes, uint64_t handle);
int driver_chunk_allow(void *device, uint64_t address, uint64_t bytes);
int driver_chunk_unmap(void *device, uint64_t address, uint64_t bytes);

/* Can other processes have the device's chunks? And a file descriptor by which one can; returns 0
 * or the driver's error. */
int driver_lends(CUdevice device);
int driver_chunk_export(uint64_t handle, int *fd);

typedef int driver_allow(CUdevice owner, CUdevice peer);

/* The device has a context. Natively all of cudaMalloc's memory can be copied and set by any device
 * that has one; mapped memory only by those that have access to it. So all that are used have, as
 * far as they can reach each other: also what a program enables by cuCtxEnablePeerAccess.
 * allow_more gives `peer` access to what lies beside the allocators' memory; it returns 0, or -1 if
 * the driver has refused some. */
void driver_device_used(CUdevice device, driver_allow *allow_more);

/* The devices that may use the mapped memory of this one, besides itself: bit i is device i's. */
uint64_t driver_peers_of(CUdevice device);

/* Are there devices that cannot? */
int driver_has_strangers(void);

#endif
