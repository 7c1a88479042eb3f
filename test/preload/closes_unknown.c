/* A program that closes every descriptor it does not know and opens files of its own, in two threads,
 * while others allocate, ask for reports, cause warnings, or share memory with a second such process.
 * Prints how often a file of its own was lost, and how often a number was not the lowest free one.
 * Arguments: seconds; "warn", "ipc" or (without Cachalot) "native". */
#include "driver_case.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { MOST = 900, FILES = 5, HANDLES = 8 }; /* from MOST on lie those of the simulated driver */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int known[MOST] = {1, 1, 1};
static _Atomic unsigned long rounds, lost, moved, opened, asked;
static _Atomic int over;
static CUcontext context;

/* What both processes see. */
static struct shared {
    _Atomic int is_made[2], is_open[2];
    CUdeviceptr block[2][HANDLES];
    CUipcMemHandle handle[2][HANDLES];
} * shared;

static void close_range_of(unsigned first, unsigned last)
{
    if (syscall(436, first, last, 0) != 0)
        for (unsigned fd = first; fd <= last; fd++)
            close((int)fd);
}

/* By one call for each number, or by one for each range. */
static void close_unknown(unsigned way)
{
    for (int fd = 3, end; fd < MOST; fd = end) {
        for (end = fd + 1; !(way & 1) && !known[fd] && end < MOST && !known[end];)
            end++;
        if (!known[fd] && way & 1)
            close(fd);
        else if (!known[fd])
            close_range_of((unsigned)fd, (unsigned)end - 1);
    }
}

static int lowest(void)
{
    int fd = 0;
    while (known[fd])
        fd++;
    return fd;
}

static int open_one(unsigned way, int index)
{
    if (index == 0 || way % 3 == 0)
        return open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return way % 3 == 1 ? memfd_create("own", MFD_CLOEXEC) : fcntl(0, F_DUPFD, 0);
}

struct file {
    int fd, is_own; /* is_own: new, and not a copy of another */
    struct stat status;
};

static void open_own(struct file *file, unsigned way)
{
    pthread_mutex_lock(&lock);
    close_unknown(way);
    for (int i = 0; i < FILES; i++) {
        int fd = open_one(way + (unsigned)i, i);
        CHECK(fd >= 0 && fd < MOST);
        moved += fd != lowest();
        known[fd] = 1;
        file[i].fd = fd;
        file[i].is_own = i == 0 || (way + (unsigned)i) % 3 < 2;
        lost += fstat(fd, &file[i].status) != 0;
    }
    pthread_mutex_unlock(&lock);
}

static int is_same(const struct file *file, uint64_t text)
{
    struct stat now;
    uint64_t back[2];
    return fstat(file->fd, &now) == 0 && now.st_dev == file->status.st_dev &&
           now.st_ino == file->status.st_ino &&
           (!file->is_own || (pread(file->fd, back, sizeof back, 0) == 8 && back[0] == text));
}

static void *open_and_close(void *number)
{
    struct file file[FILES];
    for (uint64_t way = (uintptr_t)number; !over; way += 2) {
        open_own(file, (unsigned)way);
        int wrong = 0;
        for (int i = 0; i < FILES; i++)
            wrong |= file[i].is_own && pwrite(file[i].fd, &way, 8, 0) != 8;
        if (way % 4 < 2)
            usleep((unsigned)(way % 500));
        for (int i = 0; i < FILES; i++)
            wrong |= !is_same(&file[i], way);
        pthread_mutex_lock(&lock);
        for (int i = 0; i < FILES; i++) {
            wrong |= close(file[i].fd) != 0;
            known[file[i].fd] = 0;
        }
        pthread_mutex_unlock(&lock);
        lost += (unsigned)wrong;
        rounds++;
    }
    return NULL;
}

static void *allocate(void *number)
{
    unsigned random = (unsigned)(uintptr_t)number + 1;
    CUdeviceptr block[8] = {0};
    OK(cuCtxSetCurrent(context));
    for (; !over; random = random * 1664525 + 1013904223) {
        CUdeviceptr *one = &block[random >> 28 & 7];
        if (*one)
            OK(cuMemFree(*one));
        *one = 0;
        size_t bytes = random >> 20 & 63 ? random >> 8 & 0xffffff : (size_t)1 << 45; /* too much */
        if (cuMemAlloc(one, bytes + 1) != CUDA_SUCCESS)
            *one = 0;
        usleep(20);
    }
    return NULL;
}

static void *ask(void *unused)
{
    for (; !over; asked++) {
        kill(getpid(), SIGUSR1);
        usleep(1500);
    }
    return unused;
}

static void export_all(uintptr_t me)
{
    CUdeviceptr block;
    for (int i = 0; i < HANDLES; i++) {
        OK(cuMemAlloc(&block, 3 * MIB));
        OK(cuIpcGetMemHandle(&shared->handle[me][i], block));
        shared->block[me][i] = block;
    }
    shared->is_made[me] = 1;
}

static int open_one_of_other(uintptr_t other, unsigned i)
{
    CUdeviceptr theirs;
    CUipcMemHandle handle = shared->handle[other][i % HANDLES];
    if (cuIpcOpenMemHandle(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS)
        return 0;
    OK(cuIpcCloseMemHandle(theirs));
    return 1;
}

/* Afterwards the simulated driver has all descriptors that it keeps. */
static void share_all(uintptr_t me)
{
    export_all(me);
    while (!shared->is_made[1 - me])
        usleep(1000);
    for (unsigned i = 0; i < HANDLES; i++)
        CHECK(open_one_of_other(1 - me, i));
    shared->is_open[me] = 1;
    while (!shared->is_open[1 - me])
        usleep(1000);
}

static void *share(void *number)
{
    uintptr_t me = (uintptr_t)number;
    OK(cuCtxSetCurrent(context));
    for (unsigned i = 0; !over; i++) {
        CUipcMemHandle handle;
        if (cuIpcGetMemHandle(&handle, shared->block[me][i % HANDLES]) == CUDA_SUCCESS)
            shared->handle[me][i % HANDLES] = handle;
        opened += (unsigned long)open_one_of_other(1 - me, i);
    }
    return NULL;
}

/* Without Cachalot, a program's own library does the same: exports a handle, moves the descriptor up,
 * and closes it. */
static void *export_natively(void *unused)
{
    const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .requestedHandleTypes =
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    OK(cuCtxSetCurrent(context));
    OK(cuMemCreate(&handle, 2 * MIB, &wanted, 0));
    for (; !over; opened++) {
        struct stat before, now;
        int fd = -1;
        OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        int code = fstat(fd, &before), high = fcntl(fd, F_DUPFD_CLOEXEC, MOST);
        if (code == 0 && fstat(fd, &now) == 0 && now.st_ino == before.st_ino)
            close(fd);
        if (high >= 0)
            close(high);
    }
    OK(cuMemRelease(handle));
    return unused;
}

/* A block inside its segment: each call gives a warning, which goes into the log. */
static void *warn(void *unused)
{
    CUdeviceptr block[2];
    CUipcMemHandle handle;
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++)
        OK(cuMemAlloc(&block[i], 1000));
    for (; !over; usleep(200))
        for (int i = 0; i < 2; i++)
            cuIpcGetMemHandle(&handle, block[i]);
    return unused;
}

static void start(pthread_t *thread, void *(*function)(void *), uintptr_t number)
{
    OK(pthread_create(thread, NULL, function, (void *)number));
}

int main(int count, char **argument)
{
    pthread_t thread[6];
    int threads = 0, status = 0, is_ipc = count > 2 && strcmp(argument[2], "ipc") == 0;
    CHECK(count >= 2);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t other = is_ipc ? fork() : 0;
    context = begin();
    if (is_ipc) {
        share_all(other != 0);
        start(&thread[threads++], share, other != 0);
    }
    if (count > 2 && strcmp(argument[2], "native") == 0)
        signal(SIGUSR1, SIG_IGN); /* nobody answers it */
    if (count > 2 && !is_ipc)
        start(&thread[threads++], strcmp(argument[2], "native") ? warn : export_natively, 0);
    for (uintptr_t i = 0; i < 2; i++) {
        start(&thread[threads++], open_and_close, i);
        start(&thread[threads++], allocate, i);
    }
    start(&thread[threads++], ask, 0);
    for (time_t end = time(NULL) + atoi(argument[1]); time(NULL) < end;)
        usleep(100000); /* which signals end */
    over = 1;
    while (threads > 0)
        OK(pthread_join(thread[--threads], NULL));
    if (other)
        CHECK(waitpid(other, &status, 0) == other && status == 0);
    printf("%lu rounds, %lu lost, %lu moved; %lu signals, %lu opened\n", rounds, lost, moved, asked,
           opened);
    return 0;
}
