/* Does a copy go to memory that the host may read without asking the driver? Memory that is not
 * certainly the device's counts as the host's. */
#ifndef CACHALOT_INTERPOSE_STREAM_COPY_DESTINATION_H
#define CACHALOT_INTERPOSE_STREAM_COPY_DESTINATION_H

#include "interpose/resolve/cuda_api.h"
#include "stats/os/direct.h"

/* For a unified address, by asking the driver. */
DIRECT int destination_is_host(CUdeviceptr pointer);

/* For the parameters of a call. NULL and empty parameters are not the host's. */
int destination_2d(const CUDA_MEMCPY2D *copy);
int destination_2d_v1(const CUDA_MEMCPY2D_v1 *copy);
int destination_3d(const CUDA_MEMCPY3D *copy);
int destination_3d_v1(const CUDA_MEMCPY3D_v1 *copy);
int destination_3d_peer(const CUDA_MEMCPY3D_PEER *copy);
int destination_batch(const CUdeviceptr *pointers, size_t count);
int destination_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count);

#endif
