#include "interpose/context.h"

#include <stdio.h>

#include "interpose/capture.h"
#include "interpose/driver.h"
#include "interpose/kind.h"
#include "interpose/real.h"

/* The context that this thread used last, valid while the generation stands. */
static _Thread_local struct {
    CUcontext handle;
    uint64_t generation;
    struct context *context;
} last;

static void describe(struct page_device *row, CUdevice device, size_t total)
{
    CUuuid uuid = {{0}};
    if (atomic_load(&row->used))
        return;
    if (real()->cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS)
        real()->cuDeviceGetUuid(&uuid, device);
    real()->cuDeviceGetName(row->name, sizeof row->name - 1, device);
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    snprintf(row->uuid, sizeof row->uuid,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
    row->ordinal = (uint64_t)device;
    row->total_bytes = total;
    atomic_store(&row->used, 1);
}

/* The current context is the device's primary one if that is active and has this handle. Retaining
 * it costs a reference for a moment only, and does not make it, since it is active. Negative: the
 * driver does not say. */
static int is_primary(CUcontext handle, CUdevice device)
{
    CUcontext primary = NULL;
    int active = context_primary_is_active(device);
    if (active <= 0)
        return active;
    if (real()->cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return -1;
    real()->cuDevicePrimaryCtxRelease_v2(device);
    return primary == handle;
}

static struct context *slot_of(CUcontext handle)
{
    for (unsigned i = 0; i < MOST_CONTEXTS; i++)
        if (process->contexts[i].handle == handle)
            return &process->contexts[i];
    return NULL;
}

/* Caller holds both locks: a primary context that still answers does not end meanwhile. */
static struct context *make(CUcontext handle)
{
    struct context *context = slot_of(NULL);
    CUdevice device;
    size_t total = 0;
    if (!context || real()->cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return NULL;
    if (device < 0 || (unsigned)device >= atomic_load(&process->page->device_count))
        return NULL;
    int primary = is_primary(handle, device);
    if (primary < 0 || real()->cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
        return NULL;
    struct page_device *row = page_device(process->page, (unsigned)device);
    describe(row, device, total);
    kind_decide(device);
    context->device = device; /* the allocator asks the driver about it */
    struct allocator *allocator = allocator_create(
        process->domain, &driver_ops, context, (uint64_t)(uintptr_t)handle, (unsigned)device,
        &row->stats, options_limit(&process->config.options, total));
    if (!allocator)
        return NULL;
    kind_check(device, allocator);
    context->row = row;
    context->allocator = allocator;
    context->primary = primary;
    atomic_store(&context->suspended, 0);
    context->handle = handle;
    if (context->primary)
        atomic_store(&process->sole, context);
    return context;
}

pthread_mutex_t *context_primary_lock(CUdevice device)
{
    return &process->primary_lock[(unsigned)device % PEER_DEVICES];
}

/* The current one's. */
static struct context *find(CUcontext handle)
{
    CUdevice device;
    pthread_mutex_lock(&process->context_lock);
    struct context *context = slot_of(handle);
    pthread_mutex_unlock(&process->context_lock);
    if (context || real()->cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return context;
    pthread_mutex_lock(context_primary_lock(device));
    pthread_mutex_lock(&process->context_lock);
    context = slot_of(handle);
    if (!context)
        context = make(handle);
    pthread_mutex_unlock(&process->context_lock);
    pthread_mutex_unlock(context_primary_lock(device));
    return context;
}

struct context *context_current(void)
{
    CUcontext handle = NULL;
    if (real()->cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !handle)
        return NULL;
    uint64_t generation = atomic_load_explicit(&process->generation, memory_order_acquire);
    if (last.handle != handle || last.generation != generation) {
        last.context = find(handle);
        last.handle = handle;
        last.generation = generation;
        if (!last.context)
            last.handle = NULL;
    }
    return last.context && !atomic_load_explicit(&last.context->suspended, memory_order_relaxed)
               ? last.context
               : NULL;
}

struct context *context_with(CUcontext handle)
{
    struct context *context = context_current();
    if (!handle || (context && context->handle == handle))
        return handle ? context : NULL;
    pthread_mutex_lock(&process->context_lock);
    context = slot_of(handle);
    pthread_mutex_unlock(&process->context_lock);
    return context && !atomic_load(&context->suspended) ? context : NULL;
}

enum { SUSPENDED = 1, CLOSED };

/* Caller holds the context lock. */
static void shut(struct context *context)
{
    if (atomic_exchange(&context->suspended, CLOSED) == CLOSED)
        return;
    ipc_forget(context->handle);
    atomic_store(&process->sole, NULL);
    if (context->allocator && allocator_forget(context->allocator))
        process_count(COVERAGE_context_losses);
    capture_forget_context(context->handle);
}

/* Caller holds the context lock. */
static struct allocator *forget(struct context *context)
{
    shut(context);
    atomic_fetch_add(&process->generation, 1);
    context->handle = NULL;
    return context->allocator;
}

void context_refuse(CUcontext handle)
{
    pthread_mutex_lock(&process->context_lock);
    struct context *context = slot_of(handle) ? NULL : slot_of(NULL);
    if (context) {
        context->allocator = NULL;
        context->primary = 0;
        atomic_store(&context->suspended, SUSPENDED);
        context->handle = handle;
    }
    pthread_mutex_unlock(&process->context_lock);
}

struct allocator *context_forget(CUcontext handle)
{
    pthread_mutex_lock(&process->context_lock);
    struct context *context = handle ? slot_of(handle) : NULL;
    struct allocator *allocator = context ? forget(context) : NULL;
    pthread_mutex_unlock(&process->context_lock);
    return allocator;
}

void context_close(CUcontext handle)
{
    pthread_mutex_lock(&process->context_lock);
    struct context *context = handle ? slot_of(handle) : NULL;
    if (context)
        shut(context);
    pthread_mutex_unlock(&process->context_lock);
}

int context_device(CUcontext handle, CUdevice *device)
{
    CUcontext popped;
    if (real()->cuCtxPushCurrent_v2(handle) != CUDA_SUCCESS)
        return 0;
    int known = real()->cuCtxGetDevice(device) == CUDA_SUCCESS;
    if (real()->cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS)
        real()->cuCtxPopCurrent_v2(&popped);
    return known;
}

int context_is_primary(CUcontext handle)
{
    pthread_mutex_lock(&process->context_lock);
    const struct context *context = handle ? slot_of(handle) : NULL;
    int primary = context && context->primary;
    pthread_mutex_unlock(&process->context_lock);
    return primary;
}

static struct context *primary_of(CUdevice device)
{
    for (unsigned i = 0; i < MOST_CONTEXTS; i++) {
        struct context *context = &process->contexts[i];
        if (context->handle && context->primary && context->device == device)
            return context;
    }
    return NULL;
}

CUcontext context_primary(CUdevice device)
{
    pthread_mutex_lock(&process->context_lock);
    const struct context *context = primary_of(device);
    CUcontext handle = context ? context->handle : NULL;
    pthread_mutex_unlock(&process->context_lock);
    return handle;
}

void context_suspend_primary(CUdevice device, int suspended)
{
    pthread_mutex_lock(&process->context_lock);
    struct context *context = primary_of(device);
    if (context)
        atomic_store(&context->suspended, suspended);
    pthread_mutex_unlock(&process->context_lock);
}

int context_primary_is_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    CUresult result = real()->cuDevicePrimaryCtxGetState(device, &flags, &active);
    return result == CUDA_SUCCESS ? active != 0 : -1;
}
