/* What hang.c asks of a device. A flag is memory of the host that kernels see. */
#ifndef GPU_HANG_DEVICE_H
#define GPU_HANG_DEVICE_H

#include <cuda.h>
#include <stddef.h>

/* After the context is current: loads what the calls below launch. */
void device_begin(void);
volatile int *device_flag(void);
/* Kernels: one that runs until the flag is set; one that sets it; one that writes for ns. */
CUresult device_spin(CUstream stream, const volatile int *flag, CUdeviceptr block, size_t bytes);
CUresult device_feed(CUstream stream, volatile int *flag);
CUresult device_write(CUstream stream, unsigned ns, CUdeviceptr block, size_t bytes);

#endif
