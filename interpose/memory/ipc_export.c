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
#include "interpose/context/mappings.h"
#include "interpose/context/virtual_memory.h"
#include "interpose/memory/ipc.h"
#include "interpose/memory/ipc_wire.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/process/gate.h"
#include "interpose/process/own_thread.h"
#include "interpose/context/device_ops.h"
#include "stats/os/descriptor.h"
#include "stats/os/pause.h"

#define PATIENCE_NS UINT64_C(2000000000) /* for a visitor that does nothing */
#define VISITORS 32        /* that are inside at once; the one that waits longest goes */
#define WAITING 64         /* connections that wait to be accepted */
#define OVERFLOW_UID 65534 /* what a user without a name in this namespace is called */

/* The socket on which this process answers. */
struct door {
    struct descriptor socket;
    int said;
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

/* Any user of another namespace may be called by the overflow id. Only a process of the same user and
 * namespace may look at the namespace of the other. */
static int shares_namespace(pid_t pid)
{
    char path[48];
    struct stat own, other;
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    return pid > 0 && stat("/proc/self/ns/user", &own) == 0 && stat(path, &other) == 0 &&
           own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

int ipc_peer_is(int socket, uint32_t pid)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           peer.uid == geteuid() && (!pid || (uint32_t)peer.pid == pid) &&
           (peer.uid != OVERFLOW_UID || shares_namespace(peer.pid));
}

/* Descriptors that a forked child inherits and must close. They survive the fork, as wiped
 * variables do not. */
enum { DOOR, CHUNK, FIRST_VISITOR, INHERITED = FIRST_VISITOR + VISITORS };
static struct inherited {
    _Atomic int fd; /* plus 1 */
    _Atomic uint64_t device, inode;
} inherited[INHERITED];

static void close_inherited(void)
{
    for (int which = 0; which < INHERITED; which++) {
        struct inherited *one = &inherited[which];
        struct descriptor copy = {
            .fd = atomic_exchange(&one->fd, 0), .device = one->device, .inode = one->inode};
        descriptor_close(&copy);
    }
}

/* Takes over `fd`. Returns 0, or -1 if there is none. */
static int take_in(int which, struct descriptor *to, int fd)
{
    if (descriptor_take(to, fd, which == CHUNK ? 0 : S_IFSOCK) != 0)
        return -1;
    inherited[which].device = to->device;
    inherited[which].inode = to->inode;
    inherited[which].fd = to->fd;
    return 0;
}

static void let_go(int which, struct descriptor *descriptor)
{
    inherited[which].fd = 0;
    descriptor_close(descriptor);
}

/* A process that has come to fetch memory. It is answered as far as it reads; the rest follows when it
 * has read that. */
struct visitor {
    struct descriptor socket;
    uint64_t until_ns;        /* when it has to have done something */
    int asked, greeted, full; /* full: it has to read before more can be sent */
    struct ipc_handle wanted;
    uint64_t sent, piece; /* pieces that it has; that this lending has come to */
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
    int socket = visitor->socket.fd - 1, fd = -1;
    struct descriptor chunk;
    if (visitor->piece++ < visitor->sent)
        return 0;
    if (!visitor->greeted && tell(socket, &answer, sizeof answer, -1))
        return 1;
    visitor->greeted = 1;
    int code = driver_chunk_export(mapping_handle(handle), &fd);
    if (code != 0 || take_in(CHUNK, &chunk, fd) != 0)
        return code ? code : -1;
    code = tell(socket, &bytes, sizeof bytes, chunk.fd - 1);
    visitor->full = code != 0 && errno == EAGAIN;
    let_go(CHUNK, &chunk);
    visitor->sent += code == 0;
    return code ? 1 : 0;
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

/* Reads what the visitor wants, then sends what it has room for. Returns 1 if more is to follow. */
static int answer(const struct door *door, struct visitor *visitor)
{
    int socket = visitor->socket.fd - 1;
    if (!visitor->asked &&
        (recv(socket, &visitor->wanted, sizeof visitor->wanted, 0) != sizeof visitor->wanted ||
         !is_mine(&visitor->wanted, door)))
        return 0;
    visitor->asked = 1;
    visitor->piece = 0;
    visitor->full = 0;
    if (!process_serving())
        return 0;
    process_inside++;
    domain_lend(process.domain, visitor->wanted.address, visitor->wanted.name, &visitor->loan,
                give_piece, visitor);
    process_inside--;
    return visitor->full;
}

static void show_out(struct visitor *visitors, int i)
{
    let_go(FIRST_VISITOR + i, &visitors[i].socket);
    visitors[i] = (struct visitor){0};
}

/* The place for the next visitor; the one that did nothing for the longest time makes room. */
static int make_room(struct visitor *visitors)
{
    int oldest = 0;
    for (int i = 0; i < VISITORS; i++) {
        if (!visitors[i].socket.fd)
            return i;
        if (visitors[i].until_ns < visitors[oldest].until_ns)
            oldest = i;
    }
    show_out(visitors, oldest);
    return oldest;
}

static void let_in(const struct door *door, struct visitor *visitors)
{
    int fd = accept4(door->socket.fd - 1, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        pause_ns(10000000);
    if (fd < 0)
        return;
    int i = make_room(visitors);
    if (take_in(FIRST_VISITOR + i, &visitors[i].socket, fd) != 0 ||
        !ipc_peer_is(visitors[i].socket.fd - 1, 0))
        show_out(visitors, i);
    else
        visitors[i].until_ns = driver_ops.now_ns() + PATIENCE_NS;
}

/* Waits for the door and all visitors at once. Fills `ready` in their order, the door last. */
static void wait_for_all(const struct door *door, const struct visitor *visitors,
                         struct pollfd *ready)
{
    uint64_t now = driver_ops.now_ns(), until = UINT64_MAX;
    for (int i = 0; i < VISITORS; i++) {
        int asked = visitors[i].asked;
        ready[i] = (struct pollfd){visitors[i].socket.fd - 1, asked ? POLLOUT : POLLIN, 0};
        if (visitors[i].socket.fd && visitors[i].until_ns < until)
            until = visitors[i].until_ns;
    }
    ready[VISITORS] = (struct pollfd){door->socket.fd - 1, POLLIN, 0};
    uint64_t ms = until > now ? (until - now) / 1000000 + 1 : 0;
    poll(ready, VISITORS + 1, until == UINT64_MAX ? -1 : (int)ms);
}

static void serve_visitor(const struct door *door, struct visitor *visitors, int i, int is_ready)
{
    struct visitor *visitor = &visitors[i];
    uint64_t now = driver_ops.now_ns();
    if (!visitor->socket.fd)
        return;
    int stays = is_ready ? descriptor_is_ours(&visitor->socket) && answer(door, visitor)
                         : now < visitor->until_ns;
    if (!stays)
        show_out(visitors, i);
    else if (is_ready)
        visitor->until_ns = now + PATIENCE_NS;
}

static void *serve(void *unused)
{
    struct visitor visitors[VISITORS] = {0};
    struct pollfd ready[VISITORS + 1];
    pthread_mutex_lock(&exports.lock);
    const struct door mine = exports.door;
    pthread_mutex_unlock(&exports.lock);
    own_thread_begins("cachalot-ipc");
    for (;;) {
        wait_for_all(&mine, visitors, ready);
        if (!descriptor_is_ours(&mine.socket))
            break; /* earlier handles are void; the next export opens a new door */
        for (int i = 0; i < VISITORS; i++)
            serve_visitor(&mine, visitors, i, ready[i].revents != 0);
        if (ready[VISITORS].revents)
            let_in(&mine, visitors);
    }
    for (int i = 0; i < VISITORS; i++)
        if (visitors[i].socket.fd)
            show_out(visitors, i);
    own_thread_ends();
    return unused;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, close_inherited);
}

static int make_socket(struct descriptor *to, uint64_t number)
{
    struct sockaddr_un address;
    socklen_t size = ipc_address(&address, number);
    int first = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (take_in(DOOR, to, first) != 0)
        return -1;
    int fd = to->fd - 1;
    if (bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, WAITING) == 0)
        return 0;
    let_go(DOOR, to);
    return -1;
}

/* Caller holds the lock. */
static int open_door(struct door *door)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t random[2];
    if (descriptor_is_ours(&door->socket))
        return 0;
    pthread_once(&once, watch_forks);
    if (getrandom(random, sizeof random, 0) != sizeof random ||
        make_socket(&door->socket, random[0]) != 0)
        return -1;
    door->number = random[0];
    door->secret = random[1];
    if (own_thread_detached(serve)) {
        let_go(DOOR, &door->socket);
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
    if (!code)
        gate_forbid("memory is shared with other processes");
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
