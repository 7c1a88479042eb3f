/* A context comes on the books: its slot, its row in the page, its allocator. */
#include <stdio.h>

#include "interpose/context/context.h"
#include "interpose/context/device_ops.h"
#include "interpose/context/expandable.h"
#include "interpose/resolve/real_driver.h"

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

/* The current context is the device's primary one if that is active and has this handle. Negative:
 * the driver does not say. */
static int is_primary(CUcontext handle, CUdevice device)
{
    int active = context_primary_is_active(device);
    if (active <= 0)
        return active;
    CUcontext primary = context_active_primary(device);
    return primary ? primary == handle : -1;
}

#define UNMADE ((CUcontext)1) /* a slot's handle until its context can be found: none has it */

static struct context *reserve_slot(CUdevice device)
{
    pthread_mutex_lock(&process->context_lock);
    struct context *context = context_slot_of(NULL);
    if (context) {
        context->primary = 0;
        context->ender = 0;
        context->device = device; /* the allocator asks the driver about it */
        context->handle = UNMADE;
    }
    pthread_mutex_unlock(&process->context_lock);
    return context;
}

static struct allocator *begin(struct context *context, CUcontext handle, size_t total)
{
    CUdevice device = context->device;
    context->row = page_device(process->page, (unsigned)device);
    describe(context->row, device, total);
    kind_decide(device);
    struct allocator *allocator =
        allocator_create(process->domain, &driver_ops, context, (uint64_t)(uintptr_t)handle,
                         (unsigned)device, &context->row->stats, total);
    if (allocator)
        kind_check(device, allocator);
    return allocator;
}

/* From here on others find it, or (no allocator) the slot is free. */
static void publish(struct context *context, CUcontext handle, struct allocator *allocator,
                    int primary)
{
    pthread_mutex_lock(&process->context_lock);
    context->allocator = allocator;
    context->primary = primary;
    atomic_store(&context->suspended, 0);
    context->handle = allocator ? handle : NULL;
    pthread_mutex_unlock(&process->context_lock);
}

/* A primary context that has ended stays current, and says whose it is; but nothing can be had in it
 * (709), also not what needs no context, as mapped memory. */
static int has_memory(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    size_t available, total;
    real()->cuThreadExchangeStreamCaptureMode(&mode);
    CUresult result = real()->cuMemGetInfo_v2(&available, &total);
    real()->cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_SUCCESS;
}

struct context *context_make(CUcontext handle)
{
    CUdevice device;
    size_t total = 0;
    if (real()->cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 ||
        (unsigned)device >= atomic_load(&process->page->device_count) || !has_memory())
        return NULL;
    int primary = is_primary(handle, device);
    if (primary < 0 || real()->cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
        return NULL;
    struct context *context = reserve_slot(device);
    if (!context)
        return NULL;
    struct allocator *allocator = begin(context, handle, total);
    publish(context, handle, allocator, primary);
    if (allocator && atomic_load(&process->unnoted_work))
        allocator_note_host_work(allocator);
    if (allocator && real()->cuCtxGetDevice(&device) == CUDA_SUCCESS)
        return context;
    /* It ended while nobody could find it: another thread's, or this one's, called back. */
    if (allocator)
        context_close(handle);
    struct allocator *lost = allocator ? context_forget(handle) : NULL;
    if (lost)
        allocator_bury(lost);
    return NULL;
}
