/* Blocks that leave the process. */
#include "allocator/share.h"
#include "interpose/context/virtual_memory.h"
#include "interpose/memory/ipc.h"
#include "interpose/memory/memory.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

/* Marks the block as one that other processes have. Returns as domain_mark. */
static int mark_exported(CUdeviceptr pointer, struct block_place *place)
{
    CUdevice device;
    if (!process_serving())
        return ALLOCATOR_UNKNOWN;
    int lends = process->config.options.expandable == EXPANDABLE_TRUE &&
                real()->cuCtxGetDevice(&device) == CUDA_SUCCESS && driver_lends(device);
    process_inside++;
    int code = domain_mark(process->domain, pointer, lends ? BLOCK_LENT : BLOCK_EXPORTED, place);
    process_inside--;
    return code;
}

void memory_share(CUdeviceptr pointer)
{
    struct block_place place;
    mark_exported(pointer, &place);
}

CUresult memory_export(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    struct block_place place;
    int code = mark_exported(pointer, &place);
    if (code == ALLOCATOR_INVALID)
        return CUDA_ERROR_INVALID_VALUE; /* the driver knows the segment only */
    if (code || !handle)
        return real()->cuIpcGetMemHandle(handle, pointer);
    if (place.mapped && driver_lends((CUdevice)place.device))
        return ipc_handle_of(handle, &place);
    if (place.mapped) {
        process_warn("IPC handle of mapped memory: the driver has none for it. What is allocated "
                     "from now on can be exported; for all of it use "
                     "CACHALOT_CONF=expandable_segments:False");
    } else if (place.offset) {
        process_warn(
            "IPC handle of a block inside its segment: the peer maps the segment's begin. Programs "
            "that also send the offset in cuMemGetAddressRange's range (UCX, MPI) are right; those "
            "that do not read other bytes. Use CACHALOT_CONF=ipc:dedicated");
        if (process->config.options.ipc == IPC_ERROR)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return real()->cuIpcGetMemHandle(handle, pointer);
}
