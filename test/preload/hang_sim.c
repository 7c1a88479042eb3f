/* The kernels of test/gpu/hang.c on the simulated device. */
#include "../gpu/hang_device.h"
#include "driver_case.h"

void device_begin(void)
{
}

volatile int *device_flag(void)
{
    static volatile int flag;
    return &flag;
}

CUresult device_spin(CUstream stream, const volatile int *flag, CUdeviceptr block, size_t bytes)
{
    struct cachalot_sim_range range = {block, bytes, 1};
    return cachalot_sim_launch_spin(stream, flag, &range, 1);
}

CUresult device_feed(CUstream stream, volatile int *flag)
{
    return cachalot_sim_launch_signal(stream, 1000, flag, NULL, 0);
}

CUresult device_write(CUstream stream, unsigned ns, CUdeviceptr block, size_t bytes)
{
    struct cachalot_sim_range range = {block, bytes, 1};
    return cachalot_sim_launch(stream, ns, &range, 1);
}
