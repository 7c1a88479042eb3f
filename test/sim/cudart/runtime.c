/*
 * Starting once, the thread's device and context, the last error.
 */
#include "runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define DEVICES 64

struct runtime_thread {
    int device, bound;
    unsigned turn;
    CUresult failed;
    cudaError_t last;
};

struct runtime_driver runtime_drivers[2];
static struct runtime_start started;
static CUresult start_result;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primaries[DEVICES];
/* A reset makes every thread bind again. */
static atomic_uint turn;
static _Thread_local struct runtime_thread self;

static void start_once(void)
{
    start_result = runtime_start(&started);
    if (!start_result)
        start_result = started.init(0);
}

const struct runtime_start *runtime_started(void)
{
    return &started;
}

const struct runtime_driver *runtime_peek(void)
{
    pthread_once(&once, start_once);
    self.failed = start_result;
    return start_result ? NULL : &runtime_drivers[0];
}

CUresult runtime_failed(void)
{
    return self.failed;
}

cudaError_t runtime_fail(cudaError_t error)
{
    if (error != cudaSuccess)
        self.last = error;
    return error;
}

cudaError_t runtime_end(CUresult result)
{
    return runtime_fail((cudaError_t)result);
}

/* Retained once per process and device, as cudart does. */
CUcontext runtime_context_of(int device)
{
    if (device < 0 || device >= DEVICES)
        return NULL;
    pthread_mutex_lock(&lock);
    CUcontext context = primaries[device];
    if (!context) {
        self.failed = runtime_drivers[0].cuDevicePrimaryCtxRetain(&context, device);
        primaries[device] = context;
    }
    pthread_mutex_unlock(&lock);
    return context;
}

static CUresult bind(void)
{
    CUcontext current = NULL;
    self.failed = CUDA_SUCCESS;
    if (!self.bound || self.turn != turn)
        runtime_drivers[0].cuCtxGetCurrent(&current);
    CUcontext context = current;
    if (!current || self.turn != turn || self.bound < 0)
        context = runtime_context_of(self.device);
    if (!context)
        return self.failed ? self.failed : CUDA_ERROR_INVALID_DEVICE;
    if (context != current)
        self.failed = runtime_drivers[0].cuCtxSetCurrent(context);
    self.turn = turn;
    self.bound = self.failed == CUDA_SUCCESS;
    return self.failed;
}

/* As on an H100: a thread whose context was taken away gets it again. */
static int is_current(void)
{
    CUcontext current = NULL;
    return runtime_drivers[0].cuCtxGetCurrent(&current) == CUDA_SUCCESS && current;
}

const struct runtime_driver *runtime_begin(int per_thread)
{
    if (!runtime_peek())
        return NULL;
    if ((self.bound <= 0 || self.turn != turn || !is_current()) && bind())
        return NULL;
    return &runtime_drivers[per_thread];
}

int runtime_device(void)
{
    CUdevice device = self.device;
    if (self.bound > 0)
        runtime_drivers[0].cuCtxGetDevice(&device);
    return device;
}

cudaError_t cudaSetDevice(int device)
{
    const struct runtime_driver *d = runtime_peek();
    int count = 0;
    if (!d)
        return runtime_end(runtime_failed());
    d->cuDeviceGetCount(&count);
    if (device < 0 || device >= count)
        return runtime_fail(cudaErrorInvalidDevice);
    self.device = device;
    self.bound = -1;
    return started.device_is_lazy ? cudaSuccess : runtime_end(bind());
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    (void)device_flags, (void)flags;
    const struct runtime_driver *d = runtime_peek();
    if (!d || !runtime_context_of(device))
        return runtime_end(runtime_failed());
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    if (!runtime_peek())
        return runtime_end(runtime_failed());
    if (!device)
        return runtime_fail(cudaErrorInvalidValue);
    *device = runtime_device();
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    const struct runtime_driver *d = runtime_peek();
    if (!d)
        return runtime_end(runtime_failed());
    int device = runtime_device();
    pthread_mutex_lock(&lock);
    CUcontext context = primaries[device];
    primaries[device] = NULL;
    pthread_mutex_unlock(&lock);
    if (!context)
        return cudaSuccess;
    turn++;
    self.device = device;
    self.bound = -1;
    return runtime_end(d->cuDevicePrimaryCtxReset(device));
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t last = self.last;
    self.last = cudaSuccess;
    return last;
}

cudaError_t cudaPeekAtLastError(void)
{
    return self.last;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    runtime_peek();
    if (!version)
        return runtime_fail(cudaErrorInvalidValue);
    *version = started.version;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    const struct runtime_driver *d = runtime_peek();
    if (!version)
        return runtime_fail(cudaErrorInvalidValue);
    *version = 0;
    return d ? runtime_end(d->cuDriverGetVersion(version)) : cudaSuccess;
}

static cudaError_t entry_point(const char *name, void **out, unsigned version,
                               unsigned long long flags,
                               enum cudaDriverEntryPointQueryResult *status)
{
    if (!runtime_peek())
        return runtime_end(runtime_failed());
    if (!started.get_proc_address)
        return runtime_fail(cudaErrorNotSupported);
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result = started.get_proc_address(name, out, (int)version, flags, &found);
    if (status)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    return result == CUDA_ERROR_NOT_FOUND ? cudaSuccess : runtime_end(result);
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status)
{
    return entry_point(name, out, CUDA_VERSION, flags, status);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    return entry_point(name, out, version, flags, status);
}
