/*
 * Device memory made of host memory: one big untouched reservation per device, addresses handed out
 * ever higher, and an ordered map of what is allocated (pinned host memory too).
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_GRANULE ((size_t)2 << 20)
#define SIM_SMALL_LIMIT ((size_t)1 << 20)
#define SIM_SMALL_UNIT ((size_t)512)

enum sim_memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_POOL,
    MEMORY_ARRAY,
    MEMORY_MAPPED,
    MEMORY_IPC,
    MEMORY_HOST,
    MEMORY_REGISTERED
};

struct sim_memory {
    uintptr_t start;
    size_t bytes, charged;
    enum sim_memory_kind kind;
    int device, dying, sync_memops;
    unsigned flags;
    unsigned long long id, accessible; /* MEMORY_MAPPED: bit i: by device i */
    struct sim_context *context;
    struct sim_handle *handle; /* MEMORY_MAPPED */
    void *pool;                /* MEMORY_POOL */
    struct sim_memory *next, *previous;
};

/* Physical memory (cuMemCreate). */
struct sim_handle {
    int device, references;
    int types, fd, imported; /* fd: since it was exported, else -1 */
    size_t bytes;
    void *bytes_at; /* shared memory, of which each mapping is one more */
};

/* NULL when the device is full; charges its capacity unless charged is 0. */
struct sim_memory *memory_new(struct sim_context *context, int device, enum sim_memory_kind kind,
                              size_t bytes);
/* A record for memory at an address that is the caller's (pinned, mapped). */
struct sim_memory *memory_note(struct sim_context *context, enum sim_memory_kind kind,
                               uintptr_t start, size_t bytes);
struct sim_memory *memory_find(uintptr_t address, size_t bytes);
struct sim_memory *memory_find_base(uintptr_t address);
int memory_is_mapped(uintptr_t start, size_t bytes, int dying_too);
int memory_is_device_address(uintptr_t address);
/* Takes it out of the map, drops its pages, gives back its charge. */
void memory_release(struct sim_memory *memory);
void memory_for_each(void (*act)(struct sim_memory *memory, void *data), void *data);
void memory_release_context(struct sim_context *context);

int memory_charge(int device, size_t bytes);
void memory_discharge(int device, size_t bytes);
size_t memory_used(int device);
size_t memory_pinned(void);
/* Addresses with nothing behind them, that are not kept from others; and ranges of their own. */
uintptr_t memory_reserve(int device, size_t bytes, size_t alignment);
uintptr_t memory_reserve_range(size_t bytes, size_t alignment);
int memory_unreserve_range(uintptr_t start, size_t bytes);
int memory_is_reserved(uintptr_t start, size_t bytes);

struct sim_range;
/* One row of a range that begins in mapped memory: as it lies in the handle, as far as the mapping
 * goes. 0: it is no mapped memory. */
int physical_of(struct sim_range *range);

#endif
