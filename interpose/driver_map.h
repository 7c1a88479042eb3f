/* The part of driver_ops (driver.h) that maps memory. */
#ifndef CACHALOT_INTERPOSE_DRIVER_MAP_H
#define CACHALOT_INTERPOSE_DRIVER_MAP_H

#include <stdint.h>

#include "allocator/device.h"
#include "interpose/cuda_api.h"

#define PEER_DEVICES 64
/* Bit i: device i may use the memory, or was allowed to; and for how many pairs of contexts. */
struct peers {
    _Atomic uint64_t now, before;
    unsigned contexts[PEER_DEVICES];
};

int driver_range_reserve(void *device, uint64_t *address, uint64_t *bytes, uint64_t *total);
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

/* A context of device `peer` got access to the memory of one of `owner` (or lost it): also to all
 * that is mapped. As long as any has it, all have. */
void driver_allow_peer(CUdevice owner, CUdevice peer, int allowed);

#endif
