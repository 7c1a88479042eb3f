/* IPC with another process, for failures.c: that one opens what the failing process exports and
 * exports what it opens. Nothing fails in it. */
#include "failures_peer.h"

#include <dirent.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* cuCtxDetach */

static int line = -1; /* to the other process */

/* What the other process sends; 0: it has ended, or has nothing. */
static int receive(void *data, size_t size)
{
    return recv(line, data, size, 0) == (ssize_t)size;
}

static void tell(const void *data, size_t size)
{
    CHECK(send(line, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

/* Of a device that says it can export memory, and then cannot, there is no handle. */
static CUdeviceptr make_large(CUipcMemHandle *handle)
{
    CUdeviceptr block;
    OK(cuMemAlloc_v2(&block, 3 * MIB));
    OK(cuMemsetD8_v2(block, 7, 3 * MIB));
    if (failed("cuIpcGetMemHandle", cuIpcGetMemHandle(handle, block)) &&
        failed("cuIpcGetMemHandle", cuIpcGetMemHandle(handle, block)))
        memset(handle, 0, sizeof *handle);
    return block;
}

/* Where nothing is served nobody opens what another process serves. */
static int open_both(CUipcMemHandle handle, CUdeviceptr *theirs, CUdeviceptr *again)
{
    if (failed("cuIpcOpenMemHandle_v2", cuIpcOpenMemHandle_v2(theirs, handle, 1)) &&
        failed("cuIpcOpenMemHandle_v2", cuIpcOpenMemHandle_v2(theirs, handle, 1)))
        return 0;
    OK(cuIpcOpenMemHandle(again, handle, 1));
    return 1;
}

static _Noreturn void be_peer(void)
{
    CUipcMemHandle handle;
    CUdeviceptr theirs;
    begin();
    CUdeviceptr mine = make_large(&handle);
    tell(&handle, sizeof handle);
    if (receive(&handle, sizeof handle)) {
        int result = (int)cuIpcOpenMemHandle_v2(&theirs, handle, 1);
        tell(&result, sizeof result);
        if (!result)
            cuIpcCloseMemHandle(theirs);
    }
    cuMemFree_v2(mine);
    _exit(0);
}

void peer_begin(void)
{
    int ends[2];
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    pid_t peer = fork();
    CHECK(peer >= 0);
    line = ends[peer == 0];
    close(ends[peer != 0]);
    if (peer)
        return;
    void (*fail)(const char *) = NULL;
    *(void **)&fail = dlsym(RTLD_DEFAULT, "fail_libc");
    if (fail)
        fail(NULL);
    setenv("CASE", "peer", 1);
    unsetenv("CACHALOT_SIM_FAIL");
    alarm(PEER_SECONDS);
    be_peer();
}

void remove_pages(void)
{
    const char *name = getenv("CACHALOT_PAGE_DIR");
    DIR *directory = name ? opendir(name) : NULL;
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
}

void share_with_peer(void)
{
    CUipcMemHandle handle, mine;
    CUdeviceptr pinned_for_good;
    unsigned on = 1;
    CUdeviceptr theirs, again;
    unsigned long long kind = 0;
    int result;
    CHECK(receive(&handle, sizeof handle));
    if (open_both(handle, &theirs, &again)) {
        OK(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_BUFFER_ID, theirs));
        OK(cuMemsetD8_v2(theirs, 8, 3 * MIB));
        OK(cuIpcCloseMemHandle(again));
        OK(cuIpcCloseMemHandle(theirs)); /* natively twice the same, as often closed */
    }
    CUdeviceptr block = make_large(&mine);
    tell(&mine, sizeof mine);
    CHECK(receive(&result, sizeof result));
    OK(cuMemFree_v2(block));
    OK(cuMemAlloc_v2(&pinned_for_good, 3 * MIB));
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pinned_for_good));
    OK(cuMemFree_v2(pinned_for_good));
}

/* As programs of before CUDA 4 do. */
static void leave_context(void)
{
    CUcontext other, popped;
    CUdeviceptr block;
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuMemAlloc_v2(&block, 3 * MIB));
    OK(cuMemFree_v2(block));
    OK(cuCtxPopCurrent(&popped));
    OK(cuCtxPushCurrent(other));
    OK(cuCtxDetach(other));
}

void share_with_device(void)
{
    int devices = 0;
    CUcontext other, popped;
    leave_context();
    OK(cuDeviceGetCount(&devices));
    if (devices < 2)
        return;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent_v2(other));
    OK(cuCtxEnablePeerAccess(context, 0));
    OK(cuCtxDisablePeerAccess(context));
    OK(cuCtxPopCurrent_v2(&popped));
    OK(cuDevicePrimaryCtxRelease_v2(1));
}
