/* Uncached allocations: memory that the program gets from the driver itself. The books have each
 * live one, by kind. */
#ifndef CACHALOT_INTERPOSE_MEMORY_UNCACHED_H
#define CACHALOT_INTERPOSE_MEMORY_UNCACHED_H

#include <stdint.h>

#include "interpose/resolve/cuda_api.h"
#include "stats/page/page.h"
#include "stats/report/snapshot.h"

/* What a key is. Functions that free take keys of one space: cuMemFree and cuMemFreeAsync take any
 * device address, whatever function allocated it. */
enum uncached_space {
    SPACE_address, /* of device memory or of pinned host memory */
    SPACE_registered,
    SPACE_handle,
    SPACE_array,
    SPACE_mipmapped,
    SPACE_external,
    SPACE_graph,  /* an address at which each launch of a graph allocates */
    SPACE_mapping /* an address at which a handle is mapped */
};

struct uncached_block {
    uint64_t key, bytes;
    uint64_t owner; /* the context with which it ends, or a mapping's handle; 0: none */
    uint32_t site;  /* as in snapshot_block */
    uint32_t references, mappings; /* of a handle */
    uint16_t device, space;        /* device: of the driver, UNCACHED_NO_DEVICE: none or unknown */
    uint8_t kind;                  /* enum uncached_kind */
};
#define UNCACHED_NO_DEVICE UINT16_MAX

/* Books `bytes` of `kind` under `key` if `result` is success. Returns `result`. */
CUresult uncached_made(CUresult result, enum uncached_kind kind, enum uncached_space space,
                       uint64_t key, uint64_t bytes);

/* Notes in the page that the driver had no memory, if that is what `result` says. Returns it. */
CUresult uncached_failed(CUresult result, enum uncached_kind kind, uint64_t bytes);

/* Each launch of a graph will put `bytes` at `key`. No launch says so: one allocation and its end
 * are counted when the program frees them. */
CUresult uncached_in_graph(CUresult result, uint64_t key, uint64_t bytes);

/* Around the driver's call that frees `key`. begin takes the allocation off the books, because the
 * driver may give its address to another thread before the call returns; end puts it back if the
 * driver refused, and returns `result`. A refused free of what nobody gave out is a fault; `call` is
 * the function's name. */
struct uncached_free {
    enum { FREES_UNKNOWN, FREES_BLOCK, FREES_IN_GRAPH, FREES_REFERENCE } what;
    struct uncached_block block;
};
void uncached_free_begin(struct uncached_free *freed, enum uncached_space space, uint64_t key);
CUresult uncached_free_end(struct uncached_free *freed, const char *call, CUresult result);

/* Handles of cuMemCreate. One ends when its last reference is released and its last mapping is
 * taken down. made: properties NULL: it is imported. */
CUresult uncached_handle_made(CUresult result, uint64_t handle, uint64_t bytes,
                              const CUmemAllocationProp *properties);
CUresult uncached_handle_retained(CUresult result, uint64_t handle);
CUresult uncached_handle_mapped(CUresult result, uint64_t address, uint64_t bytes, uint64_t handle);
CUresult uncached_handle_unmapped(CUresult result, uint64_t address, uint64_t bytes);

/* Around the driver's call that may end a context, and with it what was allocated in it. */
void uncached_context_ends(CUcontext context);
void uncached_context_ended(CUcontext context, int ended);

/* Is anything on the books that would end with a context of the device? */
int uncached_has(CUdevice device);

/* Lists the live allocations. */
void uncached_walk(void (*take)(void *context, const struct snapshot_block *block), void *context);

/* The number of allocations that were freed after the program's exit had begun. */
uint64_t uncached_late_frees(void);

/* The least bytes that an allocation of `kind` takes, of which `bytes` are counted. Elements of
 * compressed arrays have fewer bytes than those that are counted. */
static inline uint64_t uncached_least(enum uncached_kind kind, uint64_t bytes)
{
    return kind == UNCACHED_array ? bytes / 8 : bytes;
}

/* Bytes of an array's elements with `levels` mip levels, without the driver's padding; 0 of NULL. */
uint64_t uncached_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels);

/* The same shape as one of three dimensions. */
static inline CUDA_ARRAY3D_DESCRIPTOR uncached_array_of(const CUDA_ARRAY_DESCRIPTOR *flat)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = flat->Width,
                                     .Height = flat->Height,
                                     .Format = flat->Format,
                                     .NumChannels = flat->NumChannels};
}

#endif
