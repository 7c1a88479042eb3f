/* CUDA's driver header with every version of every name (`_v2`, `_ptsz`). Only the header: no
 * library of CUDA is linked. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_CUDA_API_H
#define CACHALOT_INTERPOSE_RESOLVE_CUDA_API_H

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default) /* our definitions of these functions are exported */
#include <cuda.h>
#pragma GCC visibility pop
#include "interpose/resolve/cuda_newer.h"

#endif
