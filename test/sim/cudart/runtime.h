/*
 * A small CUDA runtime for tests: it reaches the driver exactly as NVIDIA's do, by whichever
 * start_*.c is linked in. It runs on the simulated driver only.
 */
#ifndef SIM_RUNTIME_H
#define SIM_RUNTIME_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#undef __CUDA_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>

/* Headers of their own, which not every toolkit has. */
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

#define DRIVER(name, version, symbol) __typeof__(symbol) *name;
#define TWIN(name, version, symbol, suffix) __typeof__(symbol) *name;
struct runtime_driver {
#include "driver_functions.def"
};
#undef DRIVER
#undef TWIN

struct runtime_start {
    int version;
    /* Up to 11.x cudaSetDevice only stores the number; later it makes the context current. */
    int device_is_lazy;
    __typeof__(cuInit) *init;
    __typeof__(cuGetProcAddress_v2) *get_proc_address;
};

/* Per-thread default stream functions are in the second. */
extern struct runtime_driver runtime_drivers[2];

/* Fills the tables the way its cudart does; defined by one of start_*.c. */
CUresult runtime_start(struct runtime_start *start);
const struct runtime_start *runtime_started(void);

/* The table, with a context current; NULL after a failure, which runtime_failed then returns. */
const struct runtime_driver *runtime_begin(int per_thread);
/* The same without a context. */
const struct runtime_driver *runtime_peek(void);
CUresult runtime_failed(void);
cudaError_t runtime_end(CUresult result);
cudaError_t runtime_fail(cudaError_t error);
int runtime_device(void);
CUcontext runtime_context_of(int device);

#endif
