/*
 * What a test can ask of the simulated device: stand-in kernels that name the bytes they touch, the
 * clock, counters. Exported by the simulated libcuda.so.1 only. This is a test device, not CUDA.
 */
#ifndef CACHALOT_SIM_H
#define CACHALOT_SIM_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cachalot_sim_range {
    CUdeviceptr address;
    size_t bytes;
    int writes;
};

/* The one parameter of the stand-in kernel. It runs for ns, and on until *spin is not zero if spin
 * is set; at its end it sets *signal to 1 if signal is set. A launch of it by cuLaunchKernel whose
 * seven numbers are not those of `shape`, if that is set, is refused. */
struct cachalot_sim_kernel {
    uint64_t ns;
    const volatile int *spin;
    volatile int *signal;
    const struct cachalot_sim_range *ranges;
    size_t range_count;
    const unsigned *shape;
};

/* The stand-in kernel, for any launch function: `void *parameters[] = {&kernel};` with a struct
 * cachalot_sim_kernel; cudaLaunchKernel takes it as its function too. */
CUfunction cachalot_sim_function(void);

/* These launch it with whatever `cuLaunchKernel` the program itself would reach (so an interposer
 * sees them). The ranges are copied. */
CUresult cachalot_sim_launch(CUstream stream, uint64_t ns, const struct cachalot_sim_range *ranges,
                             size_t count);
CUresult cachalot_sim_launch_spin(CUstream stream, const volatile int *flag,
                                  const struct cachalot_sim_range *ranges, size_t count);
CUresult cachalot_sim_launch_signal(CUstream stream, uint64_t ns, volatile int *flag,
                                    const struct cachalot_sim_range *ranges, size_t count);

/* Simulated nanoseconds. `advance` moves the clock by hand (CACHALOT_SIM_CLOCK=manual). */
uint64_t cachalot_sim_now(void);
void cachalot_sim_advance(uint64_t ns);

/* How often an exported driver function was entered; 0 for an unknown name. "*": all of them. */
unsigned long long cachalot_sim_calls(const char *function);
/* The name of the exported driver function with this number; NULL after the last. */
const char *cachalot_sim_name(size_t function);
/* As CUPTI does for a tool: called in the calling thread, before a driver function (that needs
 * cuInit) does anything and before it returns; it may itself call the driver. NULL: no more. */
typedef void cachalot_sim_callback(const char *function, int returning);
void cachalot_sim_subscribe(cachalot_sim_callback *callback);
/* An event of a context that has ended ends the process, as what CUDA leaves undefined; no more from
 * here on, for programs that use a context while it ends. */
void cachalot_sim_allow_ended_events(void);
/* Pieces of work not yet finished, and captures under way, in the whole process. */
size_t cachalot_sim_unfinished(void);
size_t cachalot_sim_captures(void);
/* Does unfinished work touch any of these bytes? */
int cachalot_sim_is_busy(CUdeviceptr address, size_t bytes);
/* May `device` use this byte of mapped memory? */
int cachalot_sim_may_access(CUdeviceptr address, int device);

#ifdef __cplusplus
}
#endif
#endif
