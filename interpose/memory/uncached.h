/* Memory that the program takes past the cache: counted, by what it is. */
#ifndef CACHALOT_INTERPOSE_MEMORY_UNCACHED_H
#define CACHALOT_INTERPOSE_MEMORY_UNCACHED_H

#include <stdint.h>

#include "interpose/resolve/cuda_api.h"
#include "stats/page/page.h"

/* Books `bytes` of `kind` under the handle or address `key` if `result` is success; returns
 * `result`. */
CUresult uncached_made(CUresult result, enum other_kind kind, uint64_t key, uint64_t bytes);

/* The driver will put `bytes` at `key` each time that a graph is launched: booked when the program
 * frees them, as one allocation and its end, since no launch says what it allocates. */
CUresult uncached_in_graph(CUresult result, uint64_t key, uint64_t bytes);

/* The same for its end. An unknown key is passed over. Returns 1 in *known (may be NULL) if it was
 * on the books. */
CUresult uncached_ended(CUresult result, uint64_t key, int *known);

/* Bytes of the elements of an array of `levels` mip levels, without the driver's padding. */
uint64_t uncached_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels);

#endif
