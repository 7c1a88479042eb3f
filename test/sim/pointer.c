/*
 * What the driver knows about an address, and handles of it for other processes.
 */
#include "call.h"
#include "capture.h"
#include "context.h"
#include "memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the bytes of a handle say: tests may read the base that was exported. */
struct ipc_handle {
    char magic[8];
    uint64_t base, bytes, id, device, process;
};

static CUmemorytype memory_type(const struct sim_memory *memory)
{
    int host = memory->kind == MEMORY_HOST || memory->kind == MEMORY_REGISTERED;
    return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static CUresult attribute_get(void *data, CUpointer_attribute attribute,
                              const struct sim_memory *memory, CUdeviceptr address)
{
    int host = memory_type(memory) == CU_MEMORYTYPE_HOST;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = (CUcontext)memory->context;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)data = memory_type(memory);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host && memory->kind != MEMORY_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)address;
        break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: /* who asks for them has SYNC_MEMOPS from then on (an H200) */
        memset(data, 0x55, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
        ((struct sim_memory *)memory)->sync_memops = 1;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = (unsigned)memory->sync_memops;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = memory->id;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = memory->kind == MEMORY_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = memory->device;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = memory->kind == MEMORY_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = memory->start;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = memory->bytes;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data =
            memory->kind == MEMORY_MAPPED ? (unsigned)memory->handle->types : 0u;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = memory->id;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = (CUmemoryPool)memory->pool;
        break;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult do_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    const struct sim_memory *memory = memory_find(address, 1);
    if (!data || !memory || memory->dying)
        return CUDA_ERROR_INVALID_VALUE;
    return attribute_get(data, attribute, memory, address);
}

/* Unknown addresses are no error here: every answer is zero. */
CUresult do_cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                   CUdeviceptr address)
{
    if (!attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_memory *memory = memory_find(address, 1);
    for (unsigned i = 0; i < count; i++) {
        struct sim_memory unknown = {.device = -2};
        if (memory && attribute_get(data[i], attributes[i], memory, address) == CUDA_SUCCESS)
            continue;
        if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)data[i] = 0;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
            *(void **)data[i] = memory ? NULL : (void *)(uintptr_t)address;
        else
            attribute_get(data[i], attributes[i], &unknown, 0);
    }
    return CUDA_SUCCESS;
}

CUresult do_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                  CUdeviceptr address)
{
    struct sim_memory *memory = memory_find(address, 1);
    if (memory && memory->kind == MEMORY_MAPPED)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!value || !memory || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    context_wait(memory->context); /* what has returned is done, and here all else */
    memory->sync_memops = *(const unsigned *)value != 0;
    return CUDA_SUCCESS;
}

CUresult do_cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    const struct sim_memory *memory = memory_find(address, 1);
    if (!out || !memory || memory->dying || memory->kind != MEMORY_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    struct ipc_handle handle = {.magic = "cachsim",
                                .base = memory->start,
                                .bytes = memory->bytes,
                                .id = memory->id,
                                .device = (uint64_t)memory->device,
                                .process = (uint64_t)getpid()};
    memset(out, 0, sizeof(*out));
    memcpy(out, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

/* Memory of its own, of the right size: the bytes of the other process are not there. */
CUresult do_cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle raw, unsigned flags)
{
    (void)flags;
    CUresult why;
    struct sim_context *context = context_current(&why);
    if (!context)
        return why;
    struct ipc_handle handle;
    memcpy(&handle, &raw, sizeof(handle));
    if (!out || memcmp(handle.magic, "cachsim", 8) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle.process == (uint64_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    uintptr_t start = memory_reserve(context->device, handle.bytes, SIM_GRANULE);
    if (!start || !memory_note(context, MEMORY_IPC, start, handle.bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = start;
    return CUDA_SUCCESS;
}

CUresult do_cuIpcCloseMemHandle(CUdeviceptr address)
{
    struct sim_memory *memory = memory_find_base(address);
    if (!memory || memory->kind != MEMORY_IPC)
        return CUDA_ERROR_INVALID_VALUE;
    context_wait(memory->context);
    memory_release(memory);
    return CUDA_SUCCESS;
}

CUresult do_cuMemGetHandleForAddressRange(void *out, CUdeviceptr address, size_t bytes,
                                          CUmemRangeHandleType type, unsigned long long flags)
{
    const uintptr_t page = 4096;
    if (!out || !bytes || address % page || bytes % page ||
        type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
        return CUDA_ERROR_INVALID_VALUE;
    /* An allocation has whole granules. */
    const struct sim_memory *memory = memory_find(address, 1);
    uintptr_t end = memory ? memory->start + memory->bytes + SIM_GRANULE - 1 : 0;
    int whole = memory && memory->kind == MEMORY_DEVICE && !memory->dying &&
                address + bytes <= end / SIM_GRANULE * SIM_GRANULE;
    if (!whole && !memory_is_mapped(address, bytes, 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags)
        return CUDA_ERROR_NOT_SUPPORTED;
    int fd = memfd_create("dma-buf", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

static CUresult advise(CUdeviceptr address, size_t bytes)
{
    const struct sim_memory *memory = memory_find(address, 1);
    if (!memory || memory->kind != MEMORY_MANAGED ||
        address + bytes > memory->start + memory->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult do_cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
    (void)advice, (void)device;
    return advise(address, bytes);
}

CUresult do_cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                           CUmemLocation location)
{
    (void)advice, (void)location;
    return advise(address, bytes);
}
