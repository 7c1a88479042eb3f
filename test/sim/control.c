/*
 * The simulator's own exported functions: launching through whatever the program would reach, and
 * the clock.
 */
#include "check.h"
#include "config.h"
#include "engine.h"
#include "memory.h"
#include "sim.h"
#include "sim_time.h"

#include <dlfcn.h>
#include <string.h>

typedef CUresult launch_function(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, unsigned, CUstream, void **, void **);

/* By name, not by call: an interposer in front of us must see the launch. */
static CUresult launch(CUstream stream, struct cachalot_sim_kernel *kernel)
{
    void *parameters[] = {kernel}, *address = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    launch_function *function;
    memcpy(&function, &address, sizeof(function));
    if (!function)
        function = cuLaunchKernel;
    return function(cachalot_sim_function(), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

CUresult cachalot_sim_launch(CUstream stream, uint64_t ns, const struct cachalot_sim_range *ranges,
                             size_t count)
{
    struct cachalot_sim_kernel kernel = {ns, NULL, NULL, ranges, count, NULL};
    return launch(stream, &kernel);
}

CUresult cachalot_sim_launch_spin(CUstream stream, const volatile int *flag,
                                  const struct cachalot_sim_range *ranges, size_t count)
{
    struct cachalot_sim_kernel kernel = {0, flag, NULL, ranges, count, NULL};
    return launch(stream, &kernel);
}

CUresult cachalot_sim_launch_signal(CUstream stream, uint64_t ns, volatile int *flag,
                                    const struct cachalot_sim_range *ranges, size_t count)
{
    struct cachalot_sim_kernel kernel = {ns, NULL, flag, ranges, count, NULL};
    return launch(stream, &kernel);
}

uint64_t cachalot_sim_now(void)
{
    engine_lock();
    uint64_t now = time_now();
    engine_unlock();
    return now;
}

void cachalot_sim_advance(uint64_t ns)
{
    engine_lock();
    if (config()->manual_clock)
        time_jump_to(time_now() + ns);
    engine_run();
    engine_unlock();
}

size_t cachalot_sim_unfinished(void)
{
    engine_lock();
    engine_run();
    size_t count = engine_unfinished();
    engine_unlock();
    return count;
}

int cachalot_sim_is_busy(CUdeviceptr address, size_t bytes)
{
    engine_lock();
    engine_run();
    int busy = check_bytes_busy(address, bytes);
    engine_unlock();
    return busy;
}

int cachalot_sim_may_access(CUdeviceptr address, int device)
{
    engine_lock();
    const struct sim_memory *memory = memory_find(address, 1);
    int may = memory && memory->kind == MEMORY_MAPPED && memory->accessible >> device & 1;
    engine_unlock();
    return may;
}
