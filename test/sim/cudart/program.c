/*
 * What compiled device code needs to load: registration and launches. No kernel of a program can
 * run; the simulator's stand-in function can be launched.
 */
#include "calls.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define HOST_FUNCTIONS 4096
#define CONFIGURATIONS 16

struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

static const void *host_functions[HOST_FUNCTIONS];
static atomic_int host_function_count;
static _Thread_local struct configuration configurations[CONFIGURATIONS];
static _Thread_local int configuration_count;

void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid,
                            int *warp);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t bytes, int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name,
                              int external, size_t bytes, int constant, int global);
char __cudaInitModule(void **handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream);

void **__cudaRegisterFatBinary(void *image)
{
    void **handle = malloc(sizeof(*handle));
    if (handle)
        *handle = image;
    return handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    free(handle);
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp)
{
    (void)handle, (void)device, (void)name, (void)threads;
    (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    int at = atomic_fetch_add(&host_function_count, 1);
    if (at < HOST_FUNCTIONS)
        host_functions[at] = host;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t bytes, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name;
    (void)external, (void)bytes, (void)constant, (void)global;
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name,
                              int external, size_t bytes, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name;
    (void)external, (void)bytes, (void)constant, (void)global;
}

char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    if (configuration_count == CONFIGURATIONS)
        return 1;
    configurations[configuration_count++] = (struct configuration){grid, block, shared, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    if (configuration_count == 0)
        return runtime_fail(cudaErrorMissingConfiguration);
    const struct configuration *top = &configurations[--configuration_count];
    *grid = top->grid;
    *block = top->block;
    *shared = top->shared;
    *(cudaStream_t *)stream = top->stream;
    return cudaSuccess;
}

/* A kernel's handle is its host function: nothing is loaded that could have another. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    *kernel = (cudaKernel_t)(uintptr_t)function;
    return cudaSuccess;
}

static int is_program_kernel(const void *function)
{
    int count = atomic_load(&host_function_count);
    for (int i = 0; i < count && i < HOST_FUNCTIONS; i++)
        if (host_functions[i] == function)
            return 1;
    return 0;
}

static CUresult launch(const struct runtime_driver *d, const void *function, dim3 grid, dim3 block,
                       void **arguments, size_t shared, cudaStream_t stream)
{
    if (!function || is_program_kernel(function))
        return (CUresult)cudaErrorInvalidDeviceFunction;
    CUresult result =
        d->cuLaunchKernel((CUfunction)(uintptr_t)function, grid.x, grid.y, grid.z, block.x, block.y,
                          block.z, (unsigned)shared, stream, arguments, NULL);
    return result == CUDA_ERROR_INVALID_HANDLE ? (CUresult)cudaErrorInvalidDeviceFunction : result;
}

CALL_TWIN(cudaLaunchKernel, _ptsz,
          (const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
           cudaStream_t stream),
          launch(d, function, grid, block, arguments, shared, stream))
CALL_TWIN(cudaLaunchCooperativeKernel, _ptsz,
          (const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
           cudaStream_t stream),
          launch(d, function, grid, block, arguments, shared, stream))
CALL_TWIN(__cudaLaunchKernel, _ptsz,
          (cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
           cudaStream_t stream),
          launch(d, (const void *)kernel, grid, block, arguments, shared, stream))
