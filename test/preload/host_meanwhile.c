/* A copy to the host is done at a free, also where it was submitted while another thread released
 * the context, though not for good, or in a context that had nothing of ours yet. */
#include "driver_case.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static _Atomic int within, held;
static unsigned char *host;

static void hold(const char *function, int returning)
{
    if (returning || strncmp(function, "cuDevicePrimaryCtxRelease", 25) || !atomic_load(&held))
        return;
    atomic_store(&within, 1);
    while (atomic_load(&held))
        usleep(100);
}

static void *release(void *unused)
{
    OK(cuDevicePrimaryCtxRelease_v2(0));
    return unused;
}

static void copy_behind_a_kernel(CUdeviceptr from, size_t bytes, CUstream stream)
{
    memset(host, 0, MIB);
    OK(cachalot_sim_launch(stream, 20 * 1000 * 1000, NULL, 0));
    OK(cuMemsetD8Async(from, 7, bytes, stream));
    OK(cuMemcpyDtoHAsync_v2(host, from, bytes, stream));
}

static void while_released(size_t bytes)
{
    CUcontext again;
    CUstream stream;
    pthread_t thread;
    size_t before, after, total;
    unsigned on = 1;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr block = make(bytes), other = make(30 * MIB);
    OK(cuMemFree_v2(other));
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    atomic_store(&within, 0);
    atomic_store(&held, 1);
    CHECK(pthread_create(&thread, NULL, release, NULL) == 0);
    while (!atomic_load(&within))
        usleep(100);
    OK(cuMemGetInfo_v2(&after, &total));
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    copy_behind_a_kernel(block, bytes, stream);
    atomic_store(&held, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(cuMemFree_v2(block));
    SAY(host[bytes - 1]);
    SAY(after == before);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
}

static void in_one_to_come(CUcontext first)
{
    CUstream stream;
    CUdeviceptr from = make(MIB);
    CUcontext second = new_context(0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(first));
    copy_behind_a_kernel(from, MIB, stream);
    OK(cuCtxSetCurrent(second));
    OK(cuMemFree_v2(make(3000)));
    SAY(host[MIB - 1]);
    OK(cuStreamSynchronize(stream));
    OK(cuCtxDestroy_v2(second));
    OK(cuCtxSetCurrent(first));
    OK(cuMemFree_v2(from));
}

int main(void)
{
    CUcontext context = begin();
    OK(cuMemAllocHost_v2((void **)&host, MIB));
    cachalot_sim_subscribe(hold);
    while_released(MIB);
    while_released(300 << 10);
    cachalot_sim_subscribe(NULL);
    in_one_to_come(context);
    OK(cuMemFreeHost(host));
    return 0;
}
