/* Handles of blocks in mapped memory, and the socket (the door) through which this process gives
 * the memory out.
 *
 * A handle holds the block's address and name. If that block no longer exists, nobody gets its
 * memory, so handles need no table and no revocation. An exported block is free of old work
 * (domain_mark), is freed through a fence, and stays in place: live memory never moves. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/share.h"
#include "interpose/context/virtual_memory.h"
#include "interpose/memory/ipc.h"
#include "interpose/memory/ipc_wire.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/process/own_thread.h"
#include "stats/os/pause.h"

#define PATIENCE_S 2 /* for a visitor that says nothing */
#define LEAST_FD 64  /* programs expect lower numbers to be their own */
#define WAITING 64   /* connections that wait to be accepted */

/* The socket on which this process answers. */
struct door {
    int fd; /* plus 1; 0: closed */
    int said;
    ino_t inode;
    uint64_t number, secret;
};

static struct WIPED exports {
    pthread_mutex_t lock;
    struct door door;
} exports;
static const struct wiped wiped WIPED_ENTRY = {&exports, sizeof exports};

socklen_t ipc_address(struct sockaddr_un *address, uint64_t door)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "cachalot-%016llx",
                          (unsigned long long)door);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int ipc_peer_is(int socket, uint32_t pid)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           peer.uid == geteuid() && (!pid || (uint32_t)peer.pid == pid);
}

/* Is the descriptor still our socket? The program may close descriptors that it does not know. */
static int is_open(int fd, ino_t inode)
{
    struct stat now;
    return fd >= 0 && fstat(fd, &now) == 0 && now.st_ino == inode;
}

/* Descriptors that a forked child inherits and must close. They survive the fork, as wiped
 * variables do not. */
enum { DOOR, VISITOR, CHUNK, INHERITED };
static _Atomic int inherited[INHERITED]; /* plus 1 */
static _Atomic ino_t door_inode;

static void close_inherited(void)
{
    for (int which = 0; which < INHERITED; which++) {
        int fd = atomic_exchange(&inherited[which], 0) - 1;
        if (fd >= 0 && (which != DOOR || is_open(fd, door_inode)))
            close(fd);
    }
}

static void let_go(int which, int fd)
{
    int noted = fd + 1; /* otherwise a child would close an unrelated descriptor of that number */
    atomic_compare_exchange_strong(&inherited[which], &noted, 0);
    if (fd >= 0)
        close(fd);
}

struct visitor {
    int socket;
    int greeted;
    struct block_loan loan;
};

/* Sends one message, with a descriptor if `fd` is not negative. */
static int tell(int socket, const void *data, size_t size, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size ? 0 : -1;
}

static int give_piece(void *context, uint64_t handle, uint64_t bytes)
{
    struct visitor *visitor = context;
    const struct ipc_answer answer = {visitor->loan.offset, visitor->loan.bytes};
    if (!visitor->greeted && tell(visitor->socket, &answer, sizeof answer, -1))
        return 1;
    visitor->greeted = 1;
    int fd = -1, code = driver_chunk_export(handle, &fd);
    inherited[CHUNK] = fd + 1;
    if (code == 0)
        code = tell(visitor->socket, &bytes, sizeof bytes, fd) ? 1 : 0;
    let_go(CHUNK, fd);
    return code;
}

int ipc_is_own(const struct ipc_handle *handle)
{
    pthread_mutex_lock(&exports.lock);
    int own = handle->pid == process.page->pid && exports.door.secret == handle->secret;
    pthread_mutex_unlock(&exports.lock);
    return own;
}

static int is_mine(const struct ipc_handle *handle, const struct door *door)
{
    const struct page *page = process.page;
    return memcmp(handle->magic, IPC_MAGIC, sizeof handle->magic) == 0 &&
           handle->secret == door->secret && handle->pid == page->pid &&
           handle->namespace == (uint32_t)page->pid_namespace &&
           handle->start_ticks == page->start_ticks;
}

static void answer(const struct door *door, int socket)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct visitor visitor = {.socket = socket};
    struct ipc_handle wanted;
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!ipc_peer_is(socket, 0) || recv(socket, &wanted, sizeof wanted, 0) != sizeof wanted ||
        !is_mine(&wanted, door) || !process_serving())
        return;
    process_inside++;
    domain_lend(process.domain, wanted.address, wanted.name, &visitor.loan, give_piece, &visitor);
    process_inside--;
}

static void *serve(void *unused)
{
    pthread_mutex_lock(&exports.lock);
    const struct door mine = exports.door;
    pthread_mutex_unlock(&exports.lock);
    own_thread_begins("cachalot-ipc");
    for (;;) {
        struct pollfd wanted = {.fd = mine.fd - 1, .events = POLLIN};
        poll(&wanted, 1, -1);
        if (!is_open(mine.fd - 1, mine.inode))
            break; /* earlier handles are void; the next export opens a new door */
        int socket = accept4(mine.fd - 1, NULL, NULL, SOCK_CLOEXEC);
        if (socket < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
            pause_ns(10000000);
        if (socket < 0)
            continue;
        inherited[VISITOR] = socket + 1;
        answer(&mine, socket);
        let_go(VISITOR, socket);
    }
    own_thread_ends();
    return unused;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, close_inherited);
}

static int make_socket(uint64_t number)
{
    struct sockaddr_un address;
    socklen_t size = ipc_address(&address, number);
    int first = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int fd = first < 0 ? -1 : fcntl(first, F_DUPFD_CLOEXEC, LEAST_FD);
    if (fd >= 0)
        close(first);
    else
        fd = first;
    if (fd < 0 || (bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, WAITING) == 0))
        return fd;
    close(fd);
    return -1;
}

/* Caller holds the lock. */
static int open_door(struct door *door)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t random[2];
    struct stat made;
    if (is_open(door->fd - 1, door->inode))
        return 0;
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -1;
    int fd = make_socket(random[0]);
    if (fd < 0 || fstat(fd, &made)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    pthread_once(&once, watch_forks);
    door->inode = made.st_ino;
    door->number = random[0];
    door->secret = random[1];
    door->fd = fd + 1;
    door_inode = made.st_ino;
    inherited[DOOR] = fd + 1;
    if (own_thread_detached(serve)) {
        door->fd = 0;
        let_go(DOOR, fd);
        return -1;
    }
    return 0;
}

/* Warns once: which processes can open handles (failed 0), or why none can (1). */
static void say(struct door *door, int failed)
{
    if (door->said & (1 << failed))
        return;
    door->said |= 1 << failed;
    if (failed)
        process_warn("IPC handle of mapped memory: no socket or thread to give the memory out by");
    else
        process_warn("IPC handle of mapped memory: processes with Cachalot in front can open it; "
                     "for others use CACHALOT_CONF=expandable_segments:False");
}

static CUresult handle_of(CUipcMemHandle *handle, const struct block_place *place)
{
    struct ipc_handle ours = {.magic = IPC_MAGIC,
                              .pid = (uint32_t)process.page->pid,
                              .namespace = (uint32_t)process.page->pid_namespace,
                              .start_ticks = process.page->start_ticks,
                              .address = place->segment_address + place->offset,
                              .name = place->name,
                              .bytes = place->requested_bytes};
    int error = errno;
    pthread_mutex_lock(&exports.lock);
    int failed = open_door(&exports.door) != 0;
    say(&exports.door, failed);
    ours.door = exports.door.number;
    ours.secret = exports.door.secret;
    pthread_mutex_unlock(&exports.lock);
    errno = error;
    if (failed)
        return CUDA_ERROR_INVALID_VALUE; /* the driver's answer for mapped memory */
    memcpy(handle, &ours, sizeof ours);
    return CUDA_SUCCESS;
}

/* Marks the block as shared with other processes. Returns as domain_mark. */
static int mark_exported(CUdeviceptr pointer, struct block_place *place)
{
    CUdevice device;
    if (!process_serving())
        return ALLOCATOR_UNKNOWN;
    int lends = process.config.options.expandable == EXPANDABLE_TRUE &&
                real()->cuCtxGetDevice(&device) == CUDA_SUCCESS && driver_lends(device);
    process_inside++;
    int code = domain_mark(process.domain, pointer, lends ? BLOCK_LENT : BLOCK_EXPORTED, place);
    process_inside--;
    return code;
}

void ipc_share(CUdeviceptr pointer)
{
    struct block_place place;
    mark_exported(pointer, &place);
}

CUresult ipc_export(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    struct block_place place;
    int code = mark_exported(pointer, &place);
    if (code == ALLOCATOR_INVALID)
        return CUDA_ERROR_INVALID_VALUE; /* the driver would export the whole segment */
    if (code || !handle)
        return real()->cuIpcGetMemHandle(handle, pointer);
    if (place.mapped && driver_lends((CUdevice)place.device))
        return handle_of(handle, &place);
    if (place.mapped) {
        process_warn("IPC handle of mapped memory: the driver has none for it. What is allocated "
                     "from now on can be exported; for all of it use "
                     "CACHALOT_CONF=expandable_segments:False");
    } else if (place.offset) {
        process_warn(
            "IPC handle of a block inside its segment: the peer maps the segment's begin. Programs "
            "that also send the offset in cuMemGetAddressRange's range (UCX, MPI) are right; those "
            "that do not read other bytes. Use CACHALOT_CONF=ipc:dedicated");
        if (process.config.options.ipc == IPC_ERROR)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return real()->cuIpcGetMemHandle(handle, pointer);
}
