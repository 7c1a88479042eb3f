/* The functions of driver_ops (device_ops.h) that map memory. */
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

/* lends: can the device's chunks be given to other processes? export: makes a file descriptor for
 * that; returns 0 or the driver's error. */
int driver_lends(CUdevice device);
int driver_chunk_export(uint64_t handle, int *fd);

typedef int driver_allow(CUdevice owner, CUdevice peer);

/* The device has a context. Natively any device with a context can copy and set all of cudaMalloc's
 * memory; mapped memory can be used only by devices with access. So all devices in use get access,
 * as far as the hardware allows; this includes what cuCtxEnablePeerAccess would enable. allow_more
 * gives `peer` access to memory beside the allocators'; it returns 0, or -1 if the driver has
 * refused some. */
void driver_device_used(CUdevice device, driver_allow *allow_more);

/* The devices that may use this device's mapped memory, besides itself: bit i is device i's. */
uint64_t driver_peers_of(CUdevice device);

/* Are there devices that cannot reach each other's memory? */
int driver_has_strangers(void);

#endif
