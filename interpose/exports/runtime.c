/* Exported: functions of a shared cudart. A cache hit is answered here. Everything else enters the
 * real cudart, which comes back to us through the driver, so that its last error and its lazy
 * contexts stay its own. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/context/context.h"
#include "interpose/memory/memory.h"
#include "interpose/resolve/loaded_objects.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

/* cudaError_t is an int in the ABI of every cudart. Its headers are not included. */
#pragma GCC visibility push(default)
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaSetDevice(int device);
int cudaDeviceReset(void);
#pragma GCC visibility pop

#define CUDART_UNLOADING 4 /* cudaErrorCudartUnloading: the answer of an unloaded cudart */

/* The real function `name` for the object of `caller`: with two cudarts in the process, the
 * caller's. */
static void *real_runtime(const char *name, const void *caller)
{
    void *function = objects_beside(caller, name);
    if (!function)
        function = real_beside(caller, name);
    return function ? function : real_dlsym_call(RTLD_NEXT, name);
}

__attribute__((noinline)) static int malloc_by_cudart(void **pointer, size_t bytes,
                                                      const void *caller)
{
    int (*next)(void **, size_t) = (int (*)(void **, size_t))real_runtime("cudaMalloc", caller);
    int error = next ? next(pointer, bytes) : CUDART_UNLOADING;
    context_bound = error == 0 && !process.watched; /* else cudart would not know of errors */
    return error;
}

/* A small request that the thread's cache did not serve. */
__attribute__((noinline)) static int malloc_further(void **pointer, size_t bytes,
                                                    const void *caller)
{
    CUdeviceptr served;
    if (!context_bound || !pointer || !process_serving() || !(served = memory_hit_again(bytes)))
        return malloc_by_cudart(pointer, bytes, caller);
    *pointer = (void *)(uintptr_t)served;
    return 0;
}

int cudaMalloc(void **pointer, size_t bytes)
{
    CUdeviceptr served;
    if (context_bound && pointer && process_serving() && (served = memory_hit(bytes))) {
        *pointer = (void *)(uintptr_t)served;
        return 0;
    }
    return malloc_further(pointer, bytes, __builtin_return_address(0));
}

__attribute__((noinline)) static int free_by_cudart(void *pointer, const void *caller)
{
    int (*next)(void *) = (int (*)(void *))real_runtime("cudaFree", caller);
    int error = next ? next(pointer) : CUDART_UNLOADING;
    memory_free_answered();
    if (error == 0)
        context_bound = !process.watched;
    return error;
}

__attribute__((noinline)) static int free_further(void *pointer, const void *caller)
{
    /* At exit a cudart that is being unloaded would refuse. */
    int early = context_bound || process_state() == PROCESS_EXITING;
    if (early && pointer && !memory_free_early((CUdeviceptr)(uintptr_t)pointer))
        return 0;
    return free_by_cudart(pointer, caller);
}

int cudaFree(void *pointer)
{
    return context_bound && memory_free_alone((CUdeviceptr)(uintptr_t)pointer)
               ? 0
               : free_further(pointer, __builtin_return_address(0));
}

int cudaSetDevice(int device)
{
    context_bound = 0;
    int (*next)(int) = (int (*)(int))real_runtime("cudaSetDevice", __builtin_return_address(0));
    return next ? next(device) : CUDART_UNLOADING;
}

int cudaDeviceReset(void)
{
    context_bound = 0;
    int (*next)(void) = (int (*)(void))real_runtime("cudaDeviceReset", __builtin_return_address(0));
    return next ? next() : CUDART_UNLOADING;
}
