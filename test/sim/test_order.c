/*
 * Order and time: the checker, streams, events, the clock.
 */
#include "test_case.h"

#include <pthread.h>

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

static void synchronise_waits_for_its_stream(void)
{
    begin();
    launch(NULL, 5000, NULL);
    uint64_t before = cachalot_sim_now();
    OK(cuStreamSynchronize(blocking));
    GIVES(0, cachalot_sim_now() - before);
    launch(blocking, 100, NULL);
    launch(blocking, 100, NULL);
    OK(cuStreamSynchronize(blocking));
    GIVES(5200, cachalot_sim_now() - before);
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
    uint64_t before = cachalot_sim_now();
    launch(a, 30000000, &write_it);
    OK(cuStreamSynchronize(a));
    CHECK(cachalot_sim_now() - before >= 30000000);
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

static const struct test_case cases[] = {
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
    {"synchronise waits for its stream", synchronise_waits_for_its_stream, MANUAL, NULL},
    {"context event covers all", context_event_covers_all, MANUAL, NULL},
    {"free waits, alloc does not", free_waits_alloc_does_not, MANUAL, NULL},
    {"real clock really waits", real_clock_really_waits, NULL, NULL},
    {"kernels feed kernels", kernels_feed_kernels, MANUAL, NULL},
    {"host ends a spin", host_ends_a_spin, NULL, NULL},
    {"host functions run", host_functions_run, NULL, NULL},
    {"host functions run, by hand", host_functions_run, MANUAL, NULL},
    {"handles come back", handles_come_back, MANUAL, "unordered"},
};

int main(void)
{
    return test_run(cases, sizeof(cases) / sizeof(cases[0]));
}
