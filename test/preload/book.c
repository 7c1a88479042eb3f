/* All kinds of memory, and the ways in which they are freed. The argument says which. */
#include "driver_case.h"

#include <pthread.h>
#include <signal.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUDA_ARRAY3D_DESCRIPTOR shape = {64, 64, 64, CU_AD_FORMAT_HALF, 2, 0}; /* 1 MiB */
static void *late, *page; /* page: of the host, registered */

static CUmemGenericAllocationHandle handle_of(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, bytes, &on_device, 0));
    return handle;
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUdeviceptr address;
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(cuMemMap(address, bytes, 0, handle, 0));
    return address;
}

/* One of each kind, of another size each; two of stream-ordered memory. */
static void keep(void)
{
    CUdeviceptr pointer;
    void *host;
    CUmipmappedArray array;
    make(5 * MIB);
    OK(cuMemAllocAsync(&pointer, MIB, NULL));
    OK(cuMemAllocAsync(&pointer, MIB, NULL));
    OK(cuMemAllocManaged(&pointer, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc(&host, 4 * MIB, 0));
    OK(posix_memalign(&page, 4096, 8 * KIB));
    OK(cuMemHostRegister(page, 8 * KIB, 0));
    OK(cuMipmappedArrayCreate(&array, &shape, 1));
    handle_of(6 * MIB);
    OK(cuCtxSynchronize());
}

/* Each function frees all that it frees natively, and what it refuses stays on the books. */
static void cross(void)
{
    CUdeviceptr managed, pool[2], ours;
    void *host;
    OK(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocAsync(&pool[0], MIB, NULL));
    OK(cuMemAllocAsync(&pool[1], MIB, NULL));
    OK(cuMemHostAlloc(&host, MIB, 0));
    OK(posix_memalign(&page, 4096, MIB));
    OK(cuMemHostRegister(page, MIB, 0));
    ours = make(MIB);
    SAY(cuMemFreeHost((void *)managed));
    SAY(cuMemFree((CUdeviceptr)host));
    SAY(cuMemFreeHost(page));
    SAY(cuMemHostUnregister(host));
    SAY(cuMemFreeHost(host));
    SAY(cuMemFreeHost(host));
    SAY(cuMemHostUnregister(page));
    SAY(cuMemHostUnregister(page));
    SAY(cuMemFree(pool[0]));
    SAY(cuMemFree(pool[0]));
    SAY(cuMemFreeAsync(pool[1], NULL));
    SAY(cuMemFreeAsync(ours, NULL));
    OK(cuCtxSynchronize());
    SAY(cuMemFree(managed));
    free(page);
}

/* Handles of 2, 4, 6, 8 and 10 MiB; those of 4 and 6 MiB are leaked. */
static void handles(void)
{
    CUmemGenericAllocationHandle handle[5], again;
    CUdeviceptr at[5];
    for (size_t i = 0; i < 5; i++) {
        handle[i] = handle_of((i + 1) * 2 * MIB);
        at[i] = mapped(handle[i], (i + 1) * 2 * MIB);
    }
    OK(cuMemRelease(handle[0]));
    OK(cuMemUnmap(at[0], 2 * MIB)); /* the last hold */
    OK(cuMemRelease(handle[1]));    /* stays mapped */
    OK(cuMemRetainAllocationHandle(&again, (void *)at[2]));
    OK(cuMemUnmap(at[2], 6 * MIB));
    OK(cuMemRelease(again)); /* one reference is left */
    OK(cuMemRetainAllocationHandle(&again, (void *)at[3]));
    OK(cuMemRelease(handle[3]));
    OK(cuMemUnmap(at[3], 8 * MIB));
    OK(cuMemRelease(again));
    /* Two mappings, which one call takes down. */
    CUdeviceptr both;
    OK(cuMemUnmap(at[4], 10 * MIB));
    OK(cuMemAddressReserve(&both, 20 * MIB, 0, 0, 0));
    OK(cuMemMap(both, 10 * MIB, 0, handle[4], 0));
    OK(cuMemMap(both + 10 * MIB, 10 * MIB, 0, handle[4], 0));
    OK(cuMemRelease(handle[4]));
    OK(cuMemUnmap(both, 20 * MIB));
}

/* What lives in a context ends with it, but not handles. */
static void end_of(const char *how)
{
    CUcontext context = NULL;
    CUdeviceptr pointer;
    if (!strcmp(how, "destroy"))
        context = new_context(0);
    if (!strcmp(how, "unserved")) { /* by a context in which the cache never served anything */
        OK(cuMemAllocManaged(&pointer, MIB, CU_MEM_ATTACH_GLOBAL));
        OK(cuDevicePrimaryCtxReset(0));
        return;
    }
    for (int i = 0; i < 300; i++)
        OK(cuMemAllocManaged(&pointer, 4 * KIB, CU_MEM_ATTACH_GLOBAL));
    keep();
    end_context(how, context);
}

static void free_late(void)
{
    cuMemFreeHost(late);
}

static void *work(void *number)
{
    CUcontext context;
    CUdeviceptr pointer[32] = {0};
    unsigned random = (unsigned)(size_t)number * 2654435761u + 1;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 2000; i++) {
        random = random * 1664525 + 1013904223;
        CUdeviceptr *one = &pointer[random >> 8 & 31];
        if (*one && random & 1 << 20)
            OK(cuMemFree(*one));
        else if (*one)
            OK(cuMemFreeAsync(*one, NULL));
        if (random & 1 << 21)
            OK(cuMemAllocAsync(one, (random >> 16) + 1, NULL));
        else
            OK(cuMemAllocManaged(one, (random >> 16) + 1, CU_MEM_ATTACH_GLOBAL));
    }
    for (size_t i = 0; i < COUNT(pointer); i++)
        if (pointer[i])
            OK(cuMemFree(pointer[i]));
    return NULL;
}

static void threads(void)
{
    pthread_t thread[8];
    for (size_t i = 0; i < COUNT(thread); i++)
        OK(pthread_create(&thread[i], NULL, work, (void *)i));
    for (size_t i = 0; i < COUNT(thread); i++)
        OK(pthread_join(thread[i], NULL));
}

int main(int count, char **argument)
{
    const char *what = count > 1 ? argument[1] : "keep";
    if (!strcmp(what, "late"))
        atexit(free_late); /* runs after all handlers that CUDA and the library add */
    begin();
    if (!strcmp(what, "cross"))
        cross();
    else if (!strcmp(what, "handles"))
        handles();
    else if (!strcmp(what, "late"))
        OK(cuMemHostAlloc(&late, MIB, 0));
    else if (!strcmp(what, "threads"))
        threads();
    else if (!strcmp(what, "keep") || !strcmp(what, "kill"))
        keep();
    else
        end_of(what);
    if (!strcmp(what, "kill"))
        raise(SIGKILL);
    return 0;
}
