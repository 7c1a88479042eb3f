/* IPC of mapped memory. The driver makes handles of whole allocations of its own only. So handles
 * of blocks in mapped memory are ours (ipc_export.c), and we open them (ipc_import.c): file
 * descriptors of the memory pass through a socket. Both processes need this library; any other
 * process gets the driver's error. */
#ifndef CACHALOT_INTERPOSE_MEMORY_IPC_H
#define CACHALOT_INTERPOSE_MEMORY_IPC_H

#include "allocator/share.h"
#include "interpose/resolve/cuda_api.h"

/* export: cuIpcGetMemHandle. For a live block of mapped memory it makes a handle of ours, always
 * the same one; for all other memory, the driver's. share: before any other handle of the memory is
 * made. */
CUresult ipc_export(CUipcMemHandle *handle, CUdeviceptr pointer);
void ipc_share(CUdeviceptr pointer);

/* is_ours: is it a handle of ours? open: opens such a handle, with the results that the driver
 * would give. */
int ipc_is_ours(const CUipcMemHandle *handle);
CUresult ipc_open(CUdeviceptr *pointer, const CUipcMemHandle *handle);

/* cuIpcCloseMemHandle. Returns 0 if ipc_open did not return `pointer`. */
int ipc_close(CUdeviceptr pointer, CUresult *result);

/* The imported memory that contains `address`. Returns 0 if there is none. */
int ipc_find(CUdeviceptr address, struct block_place *place);

/* For driver_device_used: gives `peer` access to the memory opened in contexts of `owner`. Returns
 * -1 if the driver has refused some. */
int ipc_allow_peer(CUdevice owner, CUdevice peer);

/* The end of a context. forget: before the driver is told. bury: after the context has ended,
 * unmaps what was opened in it. Both by the same thread. */
void ipc_forget(CUcontext context);
void ipc_bury(CUcontext context);

#endif
