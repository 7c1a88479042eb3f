/*
 * The simulator itself: bytes, order, the checker, the clock, injected failures.
 */
#include "test_case.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define MANUAL "CACHALOT_SIM_CLOCK=manual"

static CUcontext context;
static CUstream a, b, blocking;
static CUdeviceptr memory;
static struct cachalot_sim_range write_it, read_it;

static void begin(void)
{
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuMemAlloc(&memory, 4 << 20));
    write_it = (struct cachalot_sim_range){memory + 4096, 4096, 1};
    read_it = (struct cachalot_sim_range){memory + 8191, 4096, 0};
}

static void launch(CUstream stream, uint64_t ns, const struct cachalot_sim_range *range)
{
    OK(cachalot_sim_launch(stream, ns, range, range != NULL));
}

static CUevent event_after(CUstream stream)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, stream));
    return event;
}

static void bytes_move(void)
{
    unsigned char from[5000], to[5000];
    begin();
    memset(from, 0xa5, sizeof(from));
    memset(to, 0, sizeof(to));
    OK(cuMemcpyHtoD(memory + 3, from, sizeof(from)));
    OK(cuMemcpyDtoDAsync(memory + 100000, memory + 3, sizeof(from), 0));
    OK(cuMemcpyDtoH(to, memory + 100000, sizeof(to)));
    CHECK(memcmp(from, to, sizeof(to)) == 0);
    OK(cuMemsetD32(memory, 0x01020304, 100));
    OK(cuMemsetD8(memory + 4, 0x77, 2));
    OK(cuMemcpyDtoH(to, memory, 12));
    CHECK(memcmp(to, "\4\3\2\1\x77\x77\2\1\4\3\2\1", 12) == 0);
}

static void boxes_move(void)
{
    unsigned char from[6][10], to[6][10];
    begin();
    for (int i = 0; i < 60; i++)
        from[i / 10][i % 10] = (unsigned char)i;
    OK(cuMemsetD8(memory, 0, 4096));
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = 10,
                        .srcXInBytes = 2, .srcY = 1, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = memory, .dstPitch = 512, .WidthInBytes = 5, .Height = 4};
    OK(cuMemcpy2D(&in));
    OK(cuMemcpyDtoH(to, memory + 512, 10));
    CHECK(memcmp(to, "\x16\x17\x18\x19\x1a\0\0\0\0\0", 10) == 0);
    /* Columns beside each other do not meet, though their spans do. */
    CUDA_MEMCPY2D left = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory + 65536,
                          .srcPitch = 512, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory, .dstPitch = 512, .WidthInBytes = 256, .Height = 8};
    CUDA_MEMCPY2D right = left;
    right.dstXInBytes = 256;
    OK(cuMemcpy2DAsync(&left, a));
    OK(cuMemcpy2DAsync(&right, b));
}

static void columns_meet(void)
{
    begin();
    OK(cuMemsetD2D8Async(memory, 512, 1, 257, 8, a));
    OK(cuMemsetD2D8Async(memory + 256, 512, 1, 256, 8, b));
}

static void addresses_and_accounts(void)
{
    CUdeviceptr first, second, small;
    size_t room, left, total, pitch;
    begin();
    OK(cuMemGetInfo(&room, &total));
    GIVES(64 << 20, total);
    OK(cuMemAlloc(&first, (2 << 20) + 1));
    OK(cuMemGetInfo(&left, &total));
    GIVES(4 << 20, room - left);
    GIVES(0, first % (2 << 20));
    OK(cuMemFree(first));
    OK(cuMemAlloc(&second, 3 << 20));
    CHECK(second > first);
    OK(cuMemAlloc(&small, 1));
    CHECK(small > second);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&first, 60 << 20));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&first, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 1));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(second + 512));
    OK(cuMemFree(second));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(second));
    OK(cuMemFree(0));
    OK(cuMemAllocPitch(&first, &pitch, 513, 3, 4));
    GIVES(1024, pitch);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&first, &pitch, 513, 3, 5));
}

static void needs_init_and_context(void)
{
    CUdeviceptr address;
    GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&address, 1));
    OK(cuInit(0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&address, 1));
}

static void unordered_aborts(void)
{
    begin();
    launch(a, 1000, &write_it);
    launch(b, 1000, &read_it);
}

static void apart_is_fine(void)
{
    begin();
    launch(a, 1000, &write_it);
    read_it.address++;
    launch(b, 1000, &read_it);
    launch(a, 1000, &read_it);
}

static void unmapped_aborts(void)
{
    begin();
    write_it.bytes = 4 << 20;
    launch(a, 1000, &write_it);
}

static void freed_aborts(void)
{
    begin();
    OK(cuMemFree(memory));
    OK(cuMemsetD8Async(memory, 0, 1, a));
}

static void freed_async_aborts(void)
{
    begin();
    OK(cuMemFreeAsync(memory, a));
    launch(a, 1000, &write_it);
}

static void events_order(void)
{
    begin();
    launch(a, 1000, &write_it);
    OK(cuStreamWaitEvent(b, event_after(a), 0));
    launch(b, 1000, &read_it);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
    cachalot_sim_advance(1999);
    OK(cuStreamQuery(a));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
    cachalot_sim_advance(1);
    OK(cuStreamQuery(b));
}

static void event_of_earlier_work_does_not_order(void)
{
    begin();
    launch(a, 1000, NULL);
    CUevent event = event_after(a);
    launch(a, 1000, &write_it);
    OK(cuStreamWaitEvent(b, event, 0));
    launch(b, 1000, &read_it);
}

static void legacy_orders_blocking(void)
{
    begin();
    launch(blocking, 1000, &write_it);
    launch(NULL, 1000, &write_it);
    launch(blocking, 1000, &write_it);
    launch(CU_STREAM_PER_THREAD, 1000, NULL);
    launch(CU_STREAM_LEGACY, 1000, &read_it);
    launch(CU_STREAM_PER_THREAD, 1000, &write_it);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    OK(cuStreamSynchronize(NULL));
    GIVES(0, cachalot_sim_unfinished());
}

static void legacy_does_not_order_others(void)
{
    begin();
    launch(a, 1000, &write_it);
    launch(NULL, 1000, &write_it);
}

static void per_thread_is_not_legacy(void)
{
    begin();
    launch(CU_STREAM_PER_THREAD, 1000, &write_it);
    launch(blocking, 1000, &write_it);
}

static void *launch_in_thread(void *unused)
{
    OK(cuCtxSetCurrent(context));
    launch(CU_STREAM_PER_THREAD, 1000, &write_it);
    return unused;
}

static void per_thread_is_per_thread(void)
{
    pthread_t thread;
    begin();
    launch(CU_STREAM_PER_THREAD, 1000, &write_it);
    pthread_create(&thread, NULL, launch_in_thread, NULL);
    pthread_join(thread, NULL);
}

static void context_event_covers_all(void)
{
    CUevent event;
    begin();
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    launch(a, 1000, NULL);
    launch(b, 3000, NULL);
    launch(CU_STREAM_PER_THREAD, 2000, &write_it);
    OK(cuCtxRecordEvent(context, event));
    launch(blocking, 100, NULL);
    cachalot_sim_advance(2999);
    OK(cuStreamQuery(blocking));
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    cachalot_sim_advance(1);
    OK(cuEventQuery(event));
}

static void free_waits_alloc_does_not(void)
{
    CUdeviceptr other;
    begin();
    OK(cuMemAlloc(&other, 1000));
    launch(a, 5000, &write_it);
    uint64_t before = cachalot_sim_now();
    OK(cuMemFree(other));
    GIVES(5000, cachalot_sim_now() - before);
    launch(a, 5000, &write_it);
    OK(cuMemAlloc(&other, 1000));
    GIVES(5000, cachalot_sim_now() - before);
    OK(cuMemFree(memory));
}

static void real_clock_really_waits(void)
{
    begin();
    launch(a, 30000000, &write_it);
    uint64_t before = cachalot_sim_now();
    OK(cuStreamSynchronize(a));
    CHECK(cachalot_sim_now() - before > 20000000);
}

static void kernels_feed_kernels(void)
{
    static volatile int flag;
    begin();
    OK(cachalot_sim_launch_spin(a, &flag, &write_it, 1));
    cachalot_sim_advance(1000000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    OK(cachalot_sim_launch_signal(b, 500, &flag, NULL, 0));
    OK(cuStreamSynchronize(a));
    GIVES(1, flag);
    launch(b, 10, &write_it);
}

static void *set_flag(void *flag)
{
    __atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void host_ends_a_spin(void)
{
    static int flag;
    pthread_t thread;
    begin();
    OK(cachalot_sim_launch_spin(a, &flag, NULL, 0));
    pthread_create(&thread, NULL, set_flag, &flag);
    OK(cuStreamSynchronize(a));
    pthread_join(thread, NULL);
}

static void host_functions_run(void)
{
    static int flag;
    begin();
    OK(cuLaunchHostFunc(a, (CUhostFn)(void (*)(void))set_flag, &flag));
    OK(cuStreamSynchronize(a));
    GIVES(1, flag);
}

static void handles_come_back(void)
{
    CUstream again;
    begin();
    launch(a, 1000, &write_it);
    OK(cuStreamDestroy(a));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(a));
    OK(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    CHECK(again == a);
    OK(cuStreamQuery(again));
    launch(again, 1000, &write_it);
}

static void async_memory(void)
{
    CUdeviceptr address;
    size_t room, left, total;
    begin();
    OK(cuMemGetInfo(&room, &total));
    OK(cuMemAllocAsync(&address, 2 << 20, a));
    OK(cuMemsetD8Async(address, 1, 100, a));
    OK(cuMemFreeAsync(address, a));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(address, a));
    OK(cuMemGetInfo(&left, &total));
    CHECK(left < room);
    OK(cuStreamSynchronize(a));
    OK(cuMemGetInfo(&left, &total));
    GIVES(room, left);
}

static void async_memory_is_its_streams(void)
{
    CUdeviceptr address;
    begin();
    OK(cuMemAllocAsync(&address, 2 << 20, a));
    OK(cuMemsetD8Async(address, 1, 100, b));
}

static void failures_come_when_asked(void)
{
    CUdeviceptr address;
    begin();
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, 1));
    OK(cuMemAlloc(&address, 1));
    GIVES(999, cuMemFree(address));
    GIVES(999, cuMemFree(address));
    GIVES(3, cachalot_sim_calls("cuMemAlloc_v2"));
}

static void failure_of_nothing(void)
{
    begin();
}

static void dead_contexts_take_their_memory(void)
{
    CUcontext other;
    CUdeviceptr address;
    size_t room, left, total;
    begin();
    OK(cuMemGetInfo(&room, &total));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuMemAlloc(&address, 4 << 20));
    OK(cuCtxDestroy(other));
    OK(cuMemGetInfo(&left, &total));
    GIVES(room, left);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(address));
    OK(cuDevicePrimaryCtxRetain(&other, 0));
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuMemFree(memory));
    OK(cuDevicePrimaryCtxRelease(0));
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&address, 1));
}

static void handles_name_the_base(void)
{
    CUipcMemHandle base, inside;
    begin();
    OK(cuIpcGetMemHandle(&base, memory));
    OK(cuIpcGetMemHandle(&inside, memory + 4096));
    CHECK(memcmp(&base, &inside, sizeof(base)) == 0);
}

static const struct test_case cases[] = {
    {"bytes move", bytes_move, NULL, NULL},
    {"boxes move", boxes_move, NULL, NULL},
    {"columns meet", columns_meet, MANUAL, "unordered|cuMemsetD2D8Async|rows"},
    {"addresses and accounts", addresses_and_accounts, "CACHALOT_SIM_CAPACITY=64M", NULL},
    {"needs init and context", needs_init_and_context, NULL, NULL},
    {"unordered aborts", unordered_aborts, MANUAL,
     "unordered|this: kernel|unfinished: kernel|writes|reads|#1 |#2 "},
    {"apart is fine", apart_is_fine, MANUAL, NULL},
    {"unmapped aborts", unmapped_aborts, MANUAL, "not mapped|kernel"},
    {"freed aborts", freed_aborts, MANUAL, "not mapped|cuMemsetD8Async"},
    {"freed async aborts", freed_async_aborts, MANUAL, "not mapped|kernel"},
    {"events order", events_order, MANUAL, NULL},
    {"event of earlier work does not order", event_of_earlier_work_does_not_order, MANUAL,
     "unordered"},
    {"legacy orders blocking", legacy_orders_blocking, MANUAL, NULL},
    {"legacy does not order others", legacy_does_not_order_others, MANUAL, "unordered|legacy"},
    {"per-thread is not legacy", per_thread_is_not_legacy, MANUAL, "unordered"},
    {"per-thread is per thread", per_thread_is_per_thread, MANUAL, "unordered"},
    {"context event covers all", context_event_covers_all, MANUAL, NULL},
    {"free waits, alloc does not", free_waits_alloc_does_not, MANUAL, NULL},
    {"real clock really waits", real_clock_really_waits, NULL, NULL},
    {"kernels feed kernels", kernels_feed_kernels, MANUAL, NULL},
    {"host ends a spin", host_ends_a_spin, NULL, NULL},
    {"host functions run", host_functions_run, NULL, NULL},
    {"host functions run, by hand", host_functions_run, MANUAL, NULL},
    {"handles come back", handles_come_back, MANUAL, "unordered"},
    {"async memory", async_memory, MANUAL, NULL},
    {"async memory is its stream's", async_memory_is_its_streams, MANUAL, "unordered|allocation"},
    {"failures come when asked", failures_come_when_asked,
     "CACHALOT_SIM_FAIL=cuMemAlloc_v2:2,cuMemFree_v2:1+:999", NULL},
    {"failure of nothing", failure_of_nothing, "CACHALOT_SIM_FAIL=cuMemAllok:1", "cuMemAllok"},
    {"dead contexts take their memory", dead_contexts_take_their_memory, NULL, NULL},
    {"handles name the base", handles_name_the_base, NULL, NULL},
};

int main(void)
{
    return test_run(cases, sizeof(cases) / sizeof(cases[0]));
}
