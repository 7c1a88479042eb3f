/* Memory of other processes, opened by handles of ours (ipc_export.c). Its chunks are mapped side
 * by side, at a new address. The opening thread waits while the other process sends messages, and
 * at most SILENCE_MS for the next one. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/slab.h"
#include "allocator/share.h"
#include "interpose/context/context.h"
#include "interpose/context/device_ops.h"
#include "interpose/context/virtual_memory.h"
#include "interpose/memory/ipc.h"
#include "interpose/memory/ipc_wire.h"
#include "interpose/resolve/real_driver.h"
#include "stats/os/descriptor.h"

#define SILENCE_MS 5000 /* more than the other process waits for another visitor (PATIENCE_NS) */
#define IPC_NAMES ((uint64_t)1 << 61) /* numbers that no block has (block_place) */
#define MOST_BYTES ((uint64_t)1 << 47)
#define MOST_DESCRIPTORS 253 /* of one message (SCM_MAX_FD) */

struct import {
    struct import *next;
    struct ipc_handle handle;
    CUcontext context;
    CUdevice device; /* of the context */
    CUdeviceptr range, pointer;
    size_t range_bytes;
    uint64_t name;
    unsigned opened;
    uint64_t ender; /* the thread in the driver's call that ends the context */
};

/* Memory of other processes that is open here. The lock is never held during a driver call or a
 * message. */
static struct WIPED imports {
    pthread_mutex_t lock;
    struct import *first;
    uint64_t names;
    struct slab nodes;
} imports;
static const struct wiped wiped WIPED_ENTRY = {&imports, sizeof imports};

int ipc_is_ours(const CUipcMemHandle *handle)
{
    return process_serving() && memcmp(handle, IPC_MAGIC, 8) == 0;
}

/* Waits for a message, or for the other side to close. */
static int wait_for(int socket)
{
    struct pollfd wanted = {.fd = socket, .events = POLLIN};
    uint64_t now = driver_ops.now_ns(), end = now + SILENCE_MS * UINT64_C(1000000);
    int ready;
    do {
        ready = poll(&wanted, 1, (int)((end - now) / 1000000));
        now = driver_ops.now_ns();
    } while (ready < 0 && errno == EINTR && now < end);
    return ready > 0 ? 0 : -1;
}

/* Takes the first descriptor that came with a message and closes the others. Returns their number. */
static int take_descriptors(struct msghdr *message, struct descriptor *to)
{
    int count = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        size_t bytes = head->cmsg_len - CMSG_LEN(0);
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int), count++) {
            struct descriptor one;
            int fd;
            memcpy(&fd, CMSG_DATA(head) + at, sizeof fd);
            if (descriptor_take(&one, fd, 0) != 0)
                continue;
            if (count == 0)
                *to = one;
            else
                descriptor_close(&one);
        }
    }
    return count;
}

/* Receives one message of `size` bytes, with a descriptor or without. */
static int hear(int socket, void *data, size_t size, struct descriptor *with)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
    } control;
    struct iovec part = {data, size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    *with = (struct descriptor){0};
    if (wait_for(socket))
        return -1;
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int count = got < 0 ? 0 : take_descriptors(&message, with);
    if (got == (ssize_t)size && count <= 1)
        return 0;
    descriptor_close(with);
    return -1;
}

/* Connects to the door of the handle's process and sends the handle. Negative: that process does
 * not answer. */
static int visit(const struct ipc_handle *handle, struct descriptor *to)
{
    struct sockaddr_un address;
    socklen_t size = ipc_address(&address, handle->door);
    const struct timeval patience = {.tv_sec = SILENCE_MS / 1000};
    uint32_t pid = handle->namespace == (uint32_t)process.page->pid_namespace ? handle->pid : 0;
    if (descriptor_take(to, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), S_IFSOCK) != 0)
        return -1;
    int fd = to->fd - 1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* for connect too */
    if (connect(fd, (struct sockaddr *)&address, size) == 0 && ipc_peer_is(fd, pid) &&
        send(fd, handle, sizeof *handle, MSG_NOSIGNAL) == sizeof *handle)
        return 0;
    descriptor_close(to);
    return -1;
}

static CUresult allow_one(const struct import *import, CUdevice device)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return real()->cuMemSetAccess(import->range, import->range_bytes, &access, 1);
}

/* Gives access to the context's device, its peers, and the device that the memory lies on. */
static CUresult allow(const struct import *import, CUdevice owner)
{
    CUdevice own = import->device;
    uint64_t peers = driver_peers_of(own);
    CUresult result = allow_one(import, own);
    for (int i = 0; i < PEER_DEVICES && result == CUDA_SUCCESS; i++)
        if (i != own && (i == owner || peers >> i & 1))
            allow_one(import, i); /* a device without access is left out */
    return result;
}

/* Receives and maps the next piece at `at`, where *bytes are left. Sets *bytes to its size. */
static CUresult map_piece(int socket, CUdeviceptr at, uint64_t *bytes, CUdevice *owner)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {.location.id = -1};
    uint64_t room = *bytes;
    struct descriptor chunk;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (hear(socket, bytes, sizeof *bytes, &chunk) == 0 && chunk.fd && *bytes && *bytes <= room)
        result = real()->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)(chunk.fd - 1),
                                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    descriptor_close(&chunk);
    if (result != CUDA_SUCCESS)
        return result;
    if (*owner < 0 && real()->cuMemGetAllocationPropertiesFromHandle(&properties, handle) == 0)
        *owner = properties.location.id;
    result = real()->cuMemMap(at, *bytes, 0, handle, 0);
    driver_chunk_release(NULL, *bytes, handle); /* the mapping keeps the memory */
    return result;
}

static CUresult map_all(struct import *import, int socket, const struct ipc_answer *answer)
{
    CUdevice owner = -1;
    uint64_t done = 0;
    import->range_bytes = answer->bytes;
    CUresult result = real()->cuMemAddressReserve(&import->range, import->range_bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    import->pointer = import->range + answer->offset;
    while (result == CUDA_SUCCESS && done < answer->bytes) {
        uint64_t bytes = answer->bytes - done;
        result = map_piece(socket, import->range + done, &bytes, &owner);
        done += result == CUDA_SUCCESS ? bytes : 0;
    }
    if (result == CUDA_SUCCESS)
        result = allow(import, owner);
    if (result == CUDA_SUCCESS)
        return result;
    if (done)
        driver_chunk_unmap(NULL, import->range, done);
    driver_range_free(NULL, import->range, import->range_bytes);
    return result;
}

static int makes_sense(const struct ipc_answer *answer, const struct ipc_handle *handle)
{
    return answer->bytes < MOST_BYTES && handle->bytes <= answer->bytes &&
           answer->offset <= answer->bytes - handle->bytes;
}

static CUresult fetch(struct import *import)
{
    struct ipc_answer answer;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    struct descriptor socket, none;
    if (visit(&import->handle, &socket) != 0)
        return CUDA_ERROR_INVALID_HANDLE; /* as natively if the process has ended */
    real()->cuThreadExchangeStreamCaptureMode(&mode);
    if (hear(socket.fd - 1, &answer, sizeof answer, &none) == 0 && !none.fd &&
        makes_sense(&answer, &import->handle))
        result = map_all(import, socket.fd - 1, &answer);
    real()->cuThreadExchangeStreamCaptureMode(&mode);
    descriptor_close(&none);
    descriptor_close(&socket);
    return result;
}

static void take_down(struct import *import)
{
    driver_chunk_unmap(NULL, import->range, import->range_bytes);
    driver_range_free(NULL, import->range, import->range_bytes);
}

/* The import of this handle that is open in this context. Caller holds the lock. */
static struct import *find_open(const struct import *wanted)
{
    struct import *import = imports.first;
    while (import && (import->context != wanted->context || import->ender || !import->opened ||
                      memcmp(&import->handle, &wanted->handle, sizeof wanted->handle)))
        import = import->next;
    return import;
}

/* Opening a handle again in the same context returns the same pointer, as natively. */
static CUresult open_once_more(struct import *wanted, CUdeviceptr *pointer)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&imports.lock);
    struct import *import = find_open(wanted);
    int vain = 0;
    if (!import) {
        pthread_mutex_unlock(&imports.lock);
        result = fetch(wanted);
        pthread_mutex_lock(&imports.lock);
        if (result == CUDA_SUCCESS)
            vain = (import = find_open(wanted)) != NULL; /* another thread was faster */
    }
    imports.nodes.item_bytes = sizeof *import;
    int first = result == CUDA_SUCCESS && !import;
    if (first && !(import = slab_take(&imports.nodes))) {
        vain = 1;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (first) {
        *import = *wanted;
        import->name = ++imports.names;
        import->next = imports.first;
        imports.first = import;
    }
    if (result == CUDA_SUCCESS) {
        import->opened++;
        *pointer = import->pointer;
    }
    pthread_mutex_unlock(&imports.lock);
    if (vain)
        take_down(wanted);
    return result;
}

/* Errors of mapping functions that cuIpcOpenMemHandle never returns become
 * CUDA_ERROR_MAP_FAILED. */
static CUresult as_of_handles(CUresult result)
{
    int says = result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE ||
               result == CUDA_ERROR_INVALID_HANDLE;
    return says ? result : CUDA_ERROR_MAP_FAILED;
}

CUresult ipc_open(CUdeviceptr *pointer, const CUipcMemHandle *handle)
{
    struct import wanted = {0};
    int state, error = errno;
    memcpy(&wanted.handle, handle, sizeof wanted.handle);
    if (!pointer)
        return CUDA_ERROR_INVALID_VALUE;
    if (real()->cuCtxGetCurrent(&wanted.context) != CUDA_SUCCESS || !wanted.context ||
        real()->cuCtxGetDevice(&wanted.device) != CUDA_SUCCESS || ipc_is_own(&wanted.handle))
        return CUDA_ERROR_INVALID_CONTEXT; /* as natively */
    context_current();                     /* makes its slot, so that its end is noticed */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    CUresult result = as_of_handles(open_once_more(&wanted, pointer));
    pthread_setcancelstate(state, &state);
    errno = error;
    return result;
}

/* The link to the import opened at `pointer`. Caller holds the lock. */
static struct import **link_to(CUdeviceptr pointer)
{
    struct import **link = &imports.first;
    while (*link && ((*link)->pointer != pointer || !(*link)->opened))
        link = &(*link)->next;
    return link;
}

/* As natively: work of the context may still use the memory. */
static int wait_for_work(CUcontext handle)
{
    struct context *context = context_noted(handle);
    return context ? driver_ops.synchronize(context) : (int)real()->cuCtxSynchronize();
}

int ipc_close(CUdeviceptr pointer, CUresult *result)
{
    pthread_mutex_t *lock = &imports.lock;
    if (!process_serving())
        return 0;
    pthread_mutex_lock(lock);
    struct import **link = link_to(pointer), *import = *link;
    int last = import && !--import->opened;
    if (last)
        *link = import->next;
    pthread_mutex_unlock(lock);
    *result = CUDA_SUCCESS;
    if (!last)
        return import != NULL;
    int code = 1;
    for (int tries = 2; tries && code > 0; tries--)
        code = wait_for_work(import->context);
    if (code == 0)
        take_down(import);
    if (code > 0) /* it stays open */
        *result = CUDA_ERROR_MAP_FAILED;
    pthread_mutex_lock(lock);
    if (code == 0) {
        slab_give(&imports.nodes, import);
    } else { /* nothing can be waited for: closed, but mapped until the context ends */
        import->opened += code > 0;
        import->next = imports.first;
        imports.first = import;
    }
    pthread_mutex_unlock(lock);
    return 1;
}

int ipc_find(CUdeviceptr address, struct block_place *place)
{
    pthread_mutex_lock(&imports.lock);
    const struct import *import = imports.first;
    while (import && address - import->pointer >= import->handle.bytes)
        import = import->next;
    if (import)
        *place = (struct block_place){.segment_address = import->pointer,
                                      .size_bytes = import->handle.bytes,
                                      .requested_bytes = import->handle.bytes,
                                      .name = IPC_NAMES | import->name,
                                      .context = (uint64_t)(uintptr_t)import->context};
    pthread_mutex_unlock(&imports.lock);
    return import != NULL;
}

/* Opens once more, for us, the import on this device with the highest name below `name`. Returns 0
 * if there is none. */
static int hold_below(uint64_t name, CUdevice device, struct import *held)
{
    struct import *highest = NULL;
    pthread_mutex_lock(&imports.lock);
    for (struct import *import = imports.first; import; import = import->next)
        if (import->device == device && !import->ender && import->name < name &&
            (!highest || import->name > highest->name))
            highest = import;
    if (highest) {
        highest->opened++;
        *held = *highest;
    }
    pthread_mutex_unlock(&imports.lock);
    return highest != NULL;
}

int ipc_allow_peer(CUdevice owner, CUdevice peer)
{
    struct import held = {.name = UINT64_MAX};
    CUresult closed;
    int code = 0;
    while (hold_below(held.name, owner, &held)) {
        if (allow_one(&held, peer) != CUDA_SUCCESS)
            code = -1;
        ipc_close(held.pointer, &closed);
    }
    return code;
}

void ipc_forget(CUcontext context)
{
    pthread_mutex_lock(&imports.lock);
    for (struct import *import = imports.first; import; import = import->next)
        if (import->context == context)
            import->ender = process_thread_id();
    pthread_mutex_unlock(&imports.lock);
}

/* One import after the other, since the lock is not held during driver calls. */
void ipc_bury(CUcontext context)
{
    uint64_t self = process_thread_id();
    struct import *import;
    pthread_mutex_lock(&imports.lock);
    do {
        struct import **link = &imports.first;
        while ((import = *link) && (import->context != context || import->ender != self))
            link = &import->next;
        if (import) {
            *link = import->next;
            pthread_mutex_unlock(&imports.lock);
            take_down(import);
            pthread_mutex_lock(&imports.lock);
            slab_give(&imports.nodes, import);
        }
    } while (import);
    pthread_mutex_unlock(&imports.lock);
}
