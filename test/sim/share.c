/*
 * Handles that other processes can have: a file descriptor of a memfd that holds the bytes, and
 * behind them what the other side must know. A handle becomes one when it is first exported.
 */
#include "call.h"
#include "config.h"
#include "context.h"
#include "memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEPT_FROM 900 /* the numbers of descriptors that a handle keeps */

struct tail {
    char magic[8];
    uint64_t bytes, device;
};

static const char magic[8] = "cachsim";

struct change {
    const struct sim_handle *handle;
    int fd;
};

static void lay_over(void *start, size_t bytes, int fd)
{
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) ==
        MAP_FAILED)
        abort();
}

static void lay_over_mapping(struct sim_memory *memory, void *data)
{
    const struct change *change = data;
    if (memory->kind == MEMORY_MAPPED && memory->handle == change->handle)
        lay_over((void *)memory->start, memory->bytes, change->fd);
}

/* A copy of the descriptor, out of the way of programs that close what they do not know. */
static int copy_to_keep(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, KEPT_FROM);
    return copy >= 0 ? copy : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static int make_file(struct sim_handle *handle)
{
    struct tail tail = {.bytes = handle->bytes, .device = (uint64_t)handle->device};
    int first = memfd_create("cachalot-sim", MFD_CLOEXEC), fd = copy_to_keep(first);
    close(first);
    memcpy(tail.magic, magic, sizeof magic);
    if (fd < 0 || ftruncate(fd, (off_t)handle->bytes) ||
        pwrite(fd, handle->bytes_at, handle->bytes, 0) != (ssize_t)handle->bytes ||
        pwrite(fd, &tail, sizeof tail, (off_t)handle->bytes) != sizeof tail) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    struct change change = {handle, fd};
    lay_over(handle->bytes_at, handle->bytes, fd);
    memory_for_each(lay_over_mapping, &change);
    return fd;
}

CUresult do_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle raw,
                                         CUmemAllocationHandleType type, unsigned long long flags)
{
    struct sim_handle *handle = (struct sim_handle *)(uintptr_t)raw;
    if (!out || !handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        handle->types != (int)type)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle->fd < 0)
        handle->fd = make_file(handle);
    int fd = handle->fd < 0 ? -1 : fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);
    *(int *)out = fd;
    return fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult do_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
                                           CUmemAllocationHandleType type)
{
    struct tail tail;
    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = copy_to_keep((int)(intptr_t)os_handle);
    off_t size = lseek(fd, 0, SEEK_END), at = size - (off_t)sizeof tail;
    struct sim_handle *handle = calloc(1, sizeof *handle);
    if (!handle || at < 0 || pread(fd, &tail, sizeof tail, at) != sizeof tail ||
        memcmp(tail.magic, magic, 8) != 0 || tail.bytes != (uint64_t)at ||
        !device_is_valid((CUdevice)tail.device)) {
        close(fd);
        free(handle);
        return handle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (struct sim_handle){.device = (int)tail.device,
                                  .references = 1,
                                  .types = (int)type,
                                  .fd = fd,
                                  .imported = 1,
                                  .bytes = tail.bytes};
    handle->bytes_at = mmap(NULL, handle->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                            handle->fd, 0);
    if (handle->bytes_at == MAP_FAILED)
        abort();
    *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult do_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
                                                   CUmemGenericAllocationHandle raw)
{
    const struct sim_handle *handle = (struct sim_handle *)(uintptr_t)raw;
    if (!out || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (CUmemAllocationHandleType)handle->types,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = handle->device}};
    return CUDA_SUCCESS;
}
