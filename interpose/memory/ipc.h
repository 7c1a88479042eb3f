/* IPC of mapped memory: the driver has handles for whole allocations of its own only, so those of
 * blocks in mapped memory are ours (ipc_export.c), and we open them (ipc_import.c): the memory's
 * file descriptors pass through a socket from the one process to the other. Both have us in front;
 * any other process gets the driver's error. */
#ifndef CACHALOT_INTERPOSE_MEMORY_IPC_H
#define CACHALOT_INTERPOSE_MEMORY_IPC_H

#include "allocator/share.h"
#include "interpose/resolve/cuda_api.h"

/* cuIpcGetMemHandle: a handle of ours for a live block of mapped memory, always the same one; the
 * driver's for all else. share: before any other handle of the memory is made. */
CUresult ipc_export(CUipcMemHandle *handle, CUdeviceptr pointer);
void ipc_share(CUdeviceptr pointer);

/* Is it one of ours? Then ipc_open opens it, as natively. */
int ipc_is_ours(const CUipcMemHandle *handle);
CUresult ipc_open(CUdeviceptr *pointer, const CUipcMemHandle *handle);

/* 0: that is nothing which ipc_open returned. */
int ipc_close(CUdeviceptr pointer, CUresult *result);

/* The memory opened here that holds `address`; 0: there is none. */
int ipc_find(CUdeviceptr address, struct block_place *place);

/* As driver_device_used: also to what was opened in contexts of `owner`. -1: the driver has refused some. */
int ipc_allow_peer(CUdevice owner, CUdevice peer);

/* A context is about to end, and has ended: what was opened in it goes. */
void ipc_forget(CUcontext context);
void ipc_bury(CUcontext context);

#endif
