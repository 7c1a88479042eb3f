/* What is mapped where: the books of mapped memory by which a sleeping process gives it back
 * and gets it again. A handle that the allocator has is the address of a struct backing; so the
 * driver's handle below it may become another one.
 *
 * mapping_… are functions of driver_ops (device_ops.c). Each passes the gate, so none runs while a
 * thread moves memory: that thread alone reads and changes the books then. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_MAPPINGS_H
#define CACHALOT_INTERPOSE_CONTEXT_MAPPINGS_H

#include <stdint.h>

#include "allocator/base/treap.h"

struct context;

/* A handle. `is_empty`: the driver has it back. */
struct backing {
    struct backing *next, *previous;
    struct context *context;
    uint64_t handle, bytes;
    int is_empty;
};

/* Addresses at which a handle is mapped, ordered by address (node.minor). `is_down`: the driver has
 * unmapped it; `is_closed`: access was never given; `is_shut`: it was, and is to be given again. */
struct mapping {
    struct treap_node node;
    struct backing *backing;
    int is_down, is_closed, is_shut;
};

int mapping_create(void *device, uint64_t bytes, uint64_t *handle);
int mapping_release(void *device, uint64_t bytes, uint64_t handle);
int mapping_map(void *device, uint64_t address, uint64_t bytes, uint64_t handle);
int mapping_allow(void *device, uint64_t address, uint64_t bytes);
int mapping_unmap(void *device, uint64_t address, uint64_t bytes);

/* The driver's handle. */
uint64_t mapping_handle(uint64_t handle);

/* For the thread that moves memory; NULL: there is none. first_backing: the list of all handles.
 * at_least: the mapping at this address, or the next one behind it. around: the one that has this
 * address. */
struct backing *mapping_first_backing(void);
struct mapping *mapping_at_least(uint64_t address);
struct mapping *mapping_around(uint64_t address);

/* Has the driver make the memory of a handle, or take it back, within the group's limit. Return 0 or
 * the driver's error. */
int backing_fill(struct backing *backing);
int backing_empty(struct backing *backing);

/* Notes that a handle's memory is given back for a sleep (sign 1), or is there again (-1).
 * mapping_away: the bytes that are away from the device. */
void backing_note_away(const struct backing *backing, int sign);
uint64_t mapping_away(int device);

#endif
