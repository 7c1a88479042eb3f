/*
 * Kinds of work and memory beyond the plain ones.
 */
#include "test_case.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void pageable_sources_are_read_at_once(void)
{
    char from[64], to[64];
    begin();
    memset(from, 1, sizeof(from));
    launch(a, 1000, NULL);
    OK(cuMemcpyHtoDAsync(memory, from, sizeof(from), a));
    GIVES(2, cachalot_sim_unfinished());
    memset(from, 2, sizeof(from));
    OK(cuMemcpyDtoHAsync(to, memory, sizeof(to), a));
    GIVES(0, cachalot_sim_unfinished());
    GIVES(1, to[63]);
}

static void pinned_memory_is_asynchronous(void)
{
    unsigned char *pinned;
    begin();
    OK(cuMemHostAlloc((void **)&pinned, 100, 0));
    pinned[0] = 1;
    OK(cuMemsetD8(memory, 7, 100));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemcpyDtoHAsync(pinned, memory, 100, a));
    GIVES(1, pinned[0]);
    OK(cuStreamSynchronize(a));
    GIVES(7, pinned[0]);
    OK(cuMemcpyHtoDAsync(memory, pinned, 100, a));
    pinned[0] = 8;
    OK(cuStreamSynchronize(a));
    OK(cuMemcpyDtoH(pinned + 50, memory, 1));
    GIVES(8, pinned[50]);
    OK(cuMemFreeHost(pinned));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
}

static void pinned_memory_is_checked(void)
{
    void *pinned;
    begin();
    OK(cuMemHostAlloc(&pinned, 100, 0));
    OK(cuMemcpyDtoHAsync(pinned, memory, 100, a));
    OK(cuMemcpyHtoDAsync(memory + 4096, pinned, 100, b));
}

static void time_is_told(void)
{
    CUevent start, end;
    float milliseconds;
    begin();
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(start, a));
    launch(a, 2500000, NULL);
    OK(cuEventRecord(end, a));
    GIVES(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&milliseconds, start, end));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&milliseconds, start, end));
    GIVES(2500, milliseconds * 1000 + 0.5f);
}

static void programmatic_launches_overlap(void)
{
    begin();
    launch(a, 1000, NULL);
    launch_programmatic(a, &write_it);
    launch(a, 1000, &write_it);
    cachalot_sim_advance(1999);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    cachalot_sim_advance(1);
    OK(cuStreamQuery(a));
}

static void programmatic_launches_are_unordered(void)
{
    begin();
    launch(a, 1000, &write_it);
    launch_programmatic(a, &write_it);
}

static void values_are_waited_for(void)
{
    begin();
    OK(cuMemsetD32(memory, 0, 4));
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamWaitValue32(a, memory, 5, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD8Async(memory + 4096, 1, 1, a));
    cachalot_sim_advance(1000000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    OK(cuStreamWriteValue32(b, memory, 6, 0));
    OK(cuStreamSynchronize(a));
}

static const CUmemAllocationProp device_memory = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc allowed = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void mappings_are_memory(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr start;
    size_t room, left, total, size = 2 << 20;
    begin();
    OK(cuMemGetInfo(&room, &total));
    OK(cuMemAddressReserve(&start, 3 * size, 0, 0, 0));
    OK(cuMemCreate(&handle, size, &device_memory, 0));
    OK(cuMemMap(start, size, 0, handle, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(start, size, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemCreate(&handle, size, &device_memory, 0));
    OK(cuMemMap(start + size, size, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemSetAccess(start, 2 * size, &allowed, 1));
    OK(cuMemsetD8Async(start + size - 10, 1, 20, a));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(start));
    OK(cuMemGetInfo(&left, &total));
    GIVES(2 * size, room - left);
    OK(cuStreamSynchronize(a));
    OK(cuMemUnmap(start, 2 * size));
    OK(cuMemGetInfo(&left, &total));
    GIVES(room, left);
    OK(cuMemAddressFree(start, 3 * size));
    OK(cuMemsetD8Async(start, 1, 20, a));
}

static void mappings_need_access(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr start;
    begin();
    OK(cuMemAddressReserve(&start, 2 << 20, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 << 20, &device_memory, 0));
    OK(cuMemMap(start, 2 << 20, 0, handle, 0));
    OK(cuMemsetD8Async(start, 1, 20, a));
}

/* One handle at two addresses. */
static CUdeviceptr twice(size_t size)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr start;
    begin();
    OK(cuMemAddressReserve(&start, 2 * size, 0, 0, 0));
    OK(cuMemCreate(&handle, size, &device_memory, 0));
    OK(cuMemMap(start, size, 0, handle, 0));
    OK(cuMemMap(start + size, size, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemSetAccess(start, 2 * size, &allowed, 1));
    return start;
}

static void what_is_mapped_twice_is_the_same(void)
{
    size_t size = 2 << 20, room, left, total;
    CUdeviceptr start = twice(size);
    unsigned char byte = 0;
    OK(cuMemsetD8Async(start + 100, 7, 1, a));
    OK(cuMemcpyDtoHAsync(&byte, start + size + 100, 1, a));
    OK(cuStreamSynchronize(a));
    GIVES(7, byte);
    OK(cuMemGetInfo(&room, &total));
    OK(cuMemUnmap(start, size));
    OK(cuMemGetInfo(&left, &total));
    GIVES(room, left);
    OK(cuMemUnmap(start + size, size));
    OK(cuMemGetInfo(&left, &total));
    GIVES(room + size, left);
}

static void two_addresses_of_the_same_meet(void)
{
    size_t size = 2 << 20;
    CUdeviceptr start = twice(size);
    OK(cuMemsetD8Async(start + 100, 7, 10, a));
    CHECK(cachalot_sim_is_busy(start + size + 105, 1));
    CHECK(!cachalot_sim_is_busy(start + size + 110, 1));
    OK(cuMemsetD8Async(start + size + 50, 7, 10, b));
    OK(cuMemsetD8Async(start + size + 109, 7, 1, b));
}

static void unmapping_under_work(void)
{
    size_t size = 2 << 20;
    CUdeviceptr start = twice(size);
    OK(cuMemsetD8Async(start + 100, 7, 10, a));
    OK(cuMemUnmap(start + size, size)); /* nobody uses that address */
    OK(cuMemUnmap(start, size));
}

static CUcontext peer_context(CUstream *stream)
{
    CUcontext peer;
    OK(cuCtxCreate(&peer, NULL, 0, 1));
    OK(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxEnablePeerAccess(context, 0));
    OK(cuCtxSetCurrent(context));
    return peer;
}

static void free_does_not_wait_for_others(void)
{
    CUstream there;
    CUdeviceptr other;
    begin();
    peer_context(&there);
    OK(cuMemAlloc(&other, 100));
    launch(there, 5000, &write_it);
    uint64_t before = cachalot_sim_now();
    OK(cuMemFree(other));
    GIVES(0, cachalot_sim_now() - before);
    OK(cuCtxSynchronize());
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(there));
}

static void freed_under_others_aborts(void)
{
    CUstream there;
    begin();
    peer_context(&there);
    launch(there, 5000, &write_it);
    OK(cuMemFree(memory));
}

static void contexts_are_unordered(void)
{
    CUstream there;
    begin();
    OK(cuCtxSetCurrent(peer_context(&there)));
    launch(NULL, 5000, &write_it);
    OK(cuCtxSetCurrent(context));
    launch(blocking, 5000, &write_it);
}

static void attributes_are_told(void)
{
    unsigned type, on = 1, sync = 0;
    CUdeviceptr base;
    size_t bytes;
    begin();
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 5));
    GIVES(CU_MEMORYTYPE_DEVICE, type);
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
    OK(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
    GIVES(1, sync);
    OK(cuMemGetAddressRange(&base, &bytes, memory + 100));
    GIVES(memory, base);
    GIVES(4 << 20, bytes);
}

static void forked_children_are_told(void)
{
    int status;
    begin();
    launch(a, 1000, NULL);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr address;
        _exit(cuMemAlloc(&address, 1) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    waitpid(child, &status, 0);
    GIVES(0, status);
}

static void *die_with_work(void *unused)
{
    OK(cuCtxSetCurrent(context));
    launch(CU_STREAM_PER_THREAD, 5000, &write_it);
    return unused;
}

static void work_outlives_its_thread(void)
{
    pthread_t thread;
    begin();
    pthread_create(&thread, NULL, die_with_work, NULL);
    pthread_join(thread, NULL);
    GIVES(1, cachalot_sim_unfinished());
    uint64_t before = cachalot_sim_now();
    OK(cuCtxSynchronize());
    GIVES(5000, cachalot_sim_now() - before);
}

static const struct test_case cases[] = {
    {"pageable sources are read at once", pageable_sources_are_read_at_once, MANUAL, NULL},
    {"pinned memory is asynchronous", pinned_memory_is_asynchronous, MANUAL, NULL},
    {"pinned memory is checked", pinned_memory_is_checked, MANUAL,
     "unordered|cuMemcpyDtoHAsync|cuMemcpyHtoDAsync"},
    {"time is told", time_is_told, MANUAL, NULL},
    {"programmatic launches overlap", programmatic_launches_overlap, MANUAL, NULL},
    {"programmatic launches are unordered", programmatic_launches_are_unordered, MANUAL,
     "unordered|cuLaunchKernelEx"},
    {"values are waited for", values_are_waited_for, MANUAL, NULL},
    {"mappings are memory", mappings_are_memory, MANUAL, "not mapped|cuMemsetD8Async"},
    {"what is mapped twice is the same", what_is_mapped_twice_is_the_same, NULL, NULL},
    {"two addresses of the same meet", two_addresses_of_the_same_meet, MANUAL, "unordered"},
    {"unmapping under work", unmapping_under_work, MANUAL, "freed under unfinished work"},
    {"mappings need access", mappings_need_access, MANUAL, "not mapped|cuMemsetD8Async"},
    {"free does not wait for others", free_does_not_wait_for_others,
     MANUAL " CACHALOT_SIM_DEVICES=2", NULL},
    {"freed under others aborts", freed_under_others_aborts, MANUAL " CACHALOT_SIM_DEVICES=2",
     "freed under|kernel"},
    {"contexts are unordered", contexts_are_unordered, MANUAL " CACHALOT_SIM_DEVICES=2",
     "unordered"},
    {"attributes are told", attributes_are_told, NULL, NULL},
    {"forked children are told", forked_children_are_told, NULL, NULL},
    {"work outlives its thread", work_outlives_its_thread, MANUAL, NULL},
};

int main(void)
{
    return test_run(cases, sizeof(cases) / sizeof(cases[0]));
}
