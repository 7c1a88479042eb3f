/* Uncached allocations: memory that the program gets from the driver itself, counted by kind. */
#ifndef CACHALOT_INTERPOSE_MEMORY_UNCACHED_H
#define CACHALOT_INTERPOSE_MEMORY_UNCACHED_H

#include <stdint.h>

#include "interpose/resolve/cuda_api.h"
#include "stats/page/page.h"

/* Counts `bytes` of `kind` under the handle or address `key` if `result` is success. Returns
 * `result`. */
CUresult uncached_made(CUresult result, enum uncached_kind kind, uint64_t key, uint64_t bytes);

/* Notes in the page that the driver had no memory, if that is what `result` says. Returns it. */
CUresult uncached_failed(CUresult result, enum uncached_kind kind, uint64_t bytes);

/* Each launch of a graph will put `bytes` at `key`. No launch says so: one allocation and its end
 * are counted when the program frees them. */
CUresult uncached_in_graph(CUresult result, uint64_t key, uint64_t bytes);

/* Counts the end of an allocation. An unknown key is ignored. *known (may be NULL) becomes 1 if the
 * key was known. */
CUresult uncached_ended(CUresult result, uint64_t key, int *known);

/* The least bytes that an allocation of `kind` takes, of which `bytes` are counted. Elements of
 * compressed arrays have fewer bytes than those that are counted. */
static inline uint64_t uncached_least(enum uncached_kind kind, uint64_t bytes)
{
    return kind == UNCACHED_array ? bytes / 8 : bytes;
}

/* Bytes of an array's elements with `levels` mip levels, without the driver's padding; 0 of NULL. */
uint64_t uncached_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels);

#endif
