#include "interpose/context/context.h"

#include <stdio.h>

#include "interpose/context/capture.h"
#include "interpose/context/device_ops.h"
#include "interpose/context/expandable.h"
#include "interpose/context/group_limit.h"
#include "interpose/resolve/real_driver.h"

/* The context that this thread used last, valid while the generation is the same. */
static _Thread_local struct {
    CUcontext handle;
    uint64_t generation;
    struct context *context;
} last;

struct contexts contexts;
static const struct wiped wiped WIPED_ENTRY = {&contexts, sizeof contexts};

int context_primary_is_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    CUresult result = real()->cuDevicePrimaryCtxGetState(device, &flags, &active);
    return result == CUDA_SUCCESS ? active != 0 : -1;
}

void context_start(void)
{
    atomic_store(&contexts.generation, ((uint64_t)process.life << 32) + 1);
}

/* Lists a context that has been made or found. */
static void list(CUcontext handle)
{
    int place = -1;
    pthread_mutex_lock(&contexts.lock);
    for (int i = 0; i < MOST_CONTEXTS; i++)
        if (contexts.found[i] == handle)
            place = MOST_CONTEXTS;
        else if (!contexts.found[i] && place < 0)
            place = i;
    if (place >= 0 && place < MOST_CONTEXTS)
        contexts.found[place] = handle;
    else if (place < 0)
        atomic_store(&contexts.unlisted, 1);
    atomic_fetch_add(&contexts.finds,
                     1); /* also of a listed one: it may be the handle's next owner */
    pthread_mutex_unlock(&contexts.lock);
}

/* The caller holds the lock of the slots. */
static void unlist(CUcontext handle)
{
    for (int i = 0; i < MOST_CONTEXTS; i++)
        if (contexts.found[i] == handle)
            contexts.found[i] = NULL;
}

int context_found(CUcontext handle)
{
    uintptr_t none = 0;
    list(handle);
    if (atomic_compare_exchange_strong(&contexts.first, &none, (uintptr_t)handle) ||
        none == (uintptr_t)handle)
        return 0;
    if (!atomic_exchange(&contexts.several, 1))
        atomic_fetch_add(&contexts.generation, 1); /* invalidates what threads have noted */
    return 1;
}

void context_expect_host_work(void)
{
    atomic_store(&contexts.unnoted_work, 1);
}

/* The handle of the device's active primary context. Retaining it takes a reference for a moment
 * and does not create it. NULL: the driver does not say. */
static CUcontext active_primary(CUdevice device)
{
    CUcontext primary = NULL;
    if (real()->cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return NULL;
    real()->cuDevicePrimaryCtxRelease_v2(device);
    return primary;
}

/* The slot of this handle; NULL: a free slot, whose last context has given all its memory back.
 * Caller holds the lock of the slots. */
static struct context *slot_of(CUcontext handle)
{
    for (unsigned i = 0; i < MOST_CONTEXTS; i++)
        if (contexts.slot[i].handle == handle && (handle || !contexts.slot[i].in_chunks))
            return &contexts.slot[i];
    return NULL;
}

static struct context *seek(CUcontext handle)
{
    pthread_mutex_lock(&contexts.lock);
    struct context *context = slot_of(handle);
    pthread_mutex_unlock(&contexts.lock);
    return context;
}

/* Depth of changes of primary contexts in this thread. More than one: the driver calls a tool's
 * function back within its own call. */
static _Thread_local int changes;

/* Only the outermost change takes a lock. The thread has its own device's lock already; taking
 * another device's could deadlock two threads. */
void context_change_begin(CUdevice device)
{
    if (!changes++)
        pthread_mutex_lock(&contexts.primary_lock[(unsigned)device % PEER_DEVICES]);
}

void context_change_end(CUdevice device)
{
    if (!--changes)
        pthread_mutex_unlock(&contexts.primary_lock[(unsigned)device % PEER_DEVICES]);
}

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

/* Is the current context, of this handle, the device's primary one? Negative: the driver does not
 * say. */
static int is_primary(CUcontext handle, CUdevice device)
{
    int active = context_primary_is_active(device);
    if (active <= 0)
        return active;
    CUcontext primary = active_primary(device);
    return primary ? primary == handle : -1;
}

static struct context *reserve_slot(CUdevice device)
{
    pthread_mutex_lock(&contexts.lock);
    struct context *context = slot_of(NULL);
    if (context) {
        context->primary = 0;
        context->ender = 0;
        context->device = device; /* the allocator asks the driver about it */
        context->own = NULL;
        context->handle = CONTEXT_UNMADE;
    }
    pthread_mutex_unlock(&contexts.lock);
    return context;
}

static struct allocator *make_allocator(struct context *context, CUcontext handle, size_t total)
{
    CUdevice device = context->device;
    context->row = page_device(process.page, (unsigned)device);
    describe(context->row, device, total);
    group_limit_begin(context);
    expandable_decide(device);
    struct allocator *allocator =
        allocator_create(process.domain, &driver_ops, context, (uint64_t)(uintptr_t)handle,
                         (unsigned)device, &context->row->stats, total);
    if (allocator)
        expandable_check(device, allocator);
    return allocator;
}

/* From here on other threads find the context; without an allocator the slot is free again. */
static void publish(struct context *context, CUcontext handle, struct allocator *allocator,
                    int primary)
{
    pthread_mutex_lock(&contexts.lock);
    context->allocator = allocator;
    context->primary = primary;
    atomic_store(&context->suspended, 0);
    context->handle = allocator ? handle : NULL;
    pthread_mutex_unlock(&contexts.lock);
}

/* A primary context that has ended stays current and still names its device. But every request in
 * it fails (709), even for memory that needs no context, such as mapped memory. */
static int has_memory(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    size_t available, total;
    real()->cuThreadExchangeStreamCaptureMode(&mode);
    CUresult result = real()->cuMemGetInfo_v2(&available, &total);
    real()->cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_SUCCESS;
}

/* Makes the slot and the allocator of the current context. NULL: the context is left to the driver.
 * The caller holds the lock of the device's primary context, so that another thread does not end a
 * context that still answers. */
static struct context *make(CUcontext handle)
{
    CUdevice device;
    size_t total = 0;
    if (real()->cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 ||
        (unsigned)device >= process.page->device_count || !has_memory())
        return NULL;
    int primary = is_primary(handle, device);
    if (primary < 0 || real()->cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
        return NULL;
    struct context *context = reserve_slot(device);
    if (!context)
        return NULL;
    struct allocator *allocator = make_allocator(context, handle, total);
    publish(context, handle, allocator, primary);
    if (allocator && atomic_load(&contexts.unnoted_work))
        allocator_note_host_work(allocator);
    if (allocator && real()->cuCtxGetDevice(&device) == CUDA_SUCCESS)
        return context;
    /* The context ended before it could be found: in another thread, or in a tool's function that
     * the driver called back here. */
    if (allocator)
        context_close(handle);
    struct allocator *lost = allocator ? context_forget(handle) : NULL;
    if (lost)
        allocator_bury(lost);
    return NULL;
}

/* The slot of the current context. Within a change none is made: the current context is being made,
 * or may be ending. */
static struct context *find(CUcontext handle)
{
    CUdevice device;
    struct context *context = seek(handle);
    if (context || changes || real()->cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return context;
    context_change_begin(device);
    context = seek(handle);
    if (!context)
        context = make(handle);
    context_change_end(device);
    return context;
}

/* A context that is ending is not noted: its slot may be another context's next. */
struct context *context_ask(void)
{
    CUcontext handle = NULL;
    if (real()->cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !handle)
        return NULL;
    uint64_t generation = atomic_load(&contexts.generation);
    while (last.handle != handle || last.generation != generation) {
        struct context *context = find(handle);
        int serves = context && !atomic_load(&context->suspended);
        last.context = context;
        last.handle = serves ? handle : NULL;
        last.generation = generation;
        generation = atomic_load(&contexts.generation);
        if (!serves && last.generation == generation)
            return NULL;
    }
    if (!context_switches && !atomic_load(&contexts.several))
        context_note = (struct context_note){generation, last.context, handle};
    return last.context;
}

/* Makes the slot of a context; of a green one, which is never served, that of the primary context,
 * whose events cover its work. Returns 0 if that was not possible. */
static int note(CUcontext handle)
{
    CUdevice device;
    CUcontext primary = NULL;
    CUresult result = context_push(handle);
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        pthread_mutex_lock(&contexts.lock);
        unlist(handle);
        pthread_mutex_unlock(&contexts.lock);
        return 1;
    }
    if (result != CUDA_SUCCESS)
        return 0;
    const struct context *context = find(handle);
    int noted = context && context->allocator;
    if (!noted && context && real()->cuCtxGetDevice(&device) == CUDA_SUCCESS)
        primary = context_primary_unnoted(device);
    context_pop();
    return noted || (primary && primary != handle && note(primary));
}

int context_note_all(void)
{
    uint64_t finds = atomic_load(&contexts.finds);
    if (!atomic_load(&contexts.several) || finds == atomic_load(&contexts.noted))
        return 1;
    if (atomic_load(&contexts.unlisted))
        return 0;
    for (int i = 0; i < MOST_CONTEXTS; i++) {
        pthread_mutex_lock(&contexts.lock);
        CUcontext handle = contexts.found[i];
        pthread_mutex_unlock(&contexts.lock);
        if (handle && !note(handle))
            return 0;
    }
    atomic_store(&contexts.noted, finds);
    return 1;
}

enum { SUSPENDED = 1, CLOSED, ENDING /* closed, and the slot exists only for that */ };

struct context *context_noted(CUcontext handle)
{
    struct context *context = context_current();
    if (!handle || (context && context->handle == handle))
        return handle ? context : NULL;
    context = seek(handle);
    return context && context->allocator && atomic_load(&context->suspended) != CLOSED ? context
                                                                                       : NULL;
}

/* Caller holds the lock of the slots. */
static void shut(struct context *context)
{
    context->ender = process_thread_id();
    context->last_capture = capture_last();
    int before = context->suspended;
    if (before == CLOSED || before == ENDING)
        return;
    atomic_store(&context->suspended, CLOSED);
    if (context->allocator && allocator_forget(context->allocator))
        process_count(COVERAGE_context_losses);
}

/* A slot for a handle that has none, which is never served. NULL: there are too many contexts.
 * Caller holds the lock of the slots. */
static struct context *take_refused(CUcontext handle)
{
    struct context *context = slot_of(NULL);
    if (!context)
        return NULL;
    context->allocator = NULL;
    context->primary = 0;
    context->ender = 0;
    atomic_store(&context->suspended, SUSPENDED);
    context->handle = handle;
    return context;
}

/* A context without a slot gets one: otherwise a thread could make its allocator while it ends. */
void context_close(CUcontext handle)
{
    if (!handle)
        return;
    pthread_mutex_lock(&contexts.lock);
    struct context *context = slot_of(handle);
    int unnoted = !context;
    if (unnoted)
        context = take_refused(handle);
    if (context)
        shut(context);
    if (context && unnoted)
        atomic_store(&context->suspended, ENDING);
    pthread_mutex_unlock(&contexts.lock);
}

void context_refuse(CUcontext handle)
{
    pthread_mutex_lock(&contexts.lock);
    if (!slot_of(handle))
        take_refused(handle);
    pthread_mutex_unlock(&contexts.lock);
}

void context_end_refused(CUcontext handle)
{
    pthread_mutex_lock(&contexts.lock);
    struct context *context = slot_of(handle);
    if (context && context->suspended == ENDING && context->ender == process_thread_id()) {
        atomic_fetch_add(&contexts.generation, 1); /* threads may have looked the slot up */
        context->handle = NULL;
    }
    pthread_mutex_unlock(&contexts.lock);
}

void context_empty(CUcontext handle)
{
    const struct context *context = handle ? seek(handle) : NULL;
    if (context && context->allocator)
        allocator_empty(context->allocator);
}

struct allocator *context_forget(CUcontext handle)
{
    struct allocator *allocator = NULL;
    uint64_t captures = 0;
    if (!handle)
        return NULL;
    pthread_mutex_lock(&contexts.lock);
    struct context *context = slot_of(handle);
    /* Otherwise the slot is that of the handle's next owner. */
    if (context && context->ender == process_thread_id()) {
        group_limit_give(context, &context->in_segments, UINT64_MAX);
        allocator = context->allocator;
        captures = context->last_capture;
        atomic_fetch_add(&contexts.generation, 1);
        context->handle = NULL;
        unlist(handle);
    }
    pthread_mutex_unlock(&contexts.lock);
    if (captures)
        capture_context_ended(handle, captures); /* calls the driver */
    return allocator;
}

/* A default stream belongs to the current context; the driver says no more about it. */
CUcontext context_of_stream(CUstream stream)
{
    CUcontext context = NULL;
    CUresult result = (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD
                          ? real()->cuCtxGetCurrent(&context)
                          : real()->cuStreamGetCtx(stream, &context);
    return result == CUDA_SUCCESS ? context : NULL;
}

int context_is_primary(CUcontext handle)
{
    pthread_mutex_lock(&contexts.lock);
    const struct context *context = handle ? slot_of(handle) : NULL;
    int primary = context && context->primary;
    pthread_mutex_unlock(&contexts.lock);
    return primary;
}

static struct context *primary_of(CUdevice device)
{
    for (unsigned i = 0; i < MOST_CONTEXTS; i++) {
        struct context *context = &contexts.slot[i];
        if (context->handle && context->primary && context->device == device)
            return context;
    }
    return NULL;
}

CUcontext context_primary(CUdevice device)
{
    pthread_mutex_lock(&contexts.lock);
    const struct context *context = primary_of(device);
    CUcontext handle = context ? context->handle : NULL;
    pthread_mutex_unlock(&contexts.lock);
    /* Without a slot there may be captures in it. */
    return handle || !capture_active() ? handle : context_primary_unnoted(device);
}

CUcontext context_primary_unnoted(CUdevice device)
{
    return changes > 1 || context_primary_is_active(device) <= 0 ? NULL : active_primary(device);
}

int context_suspend(CUcontext handle, int suspended)
{
    pthread_mutex_lock(&contexts.lock);
    struct context *context = handle ? slot_of(handle) : NULL;
    int before = context ? atomic_load(&context->suspended) : 0;
    struct allocator *allocator = context && before != CLOSED ? context->allocator : NULL;
    if (allocator)
        atomic_store(&context->suspended, suspended);
    pthread_mutex_unlock(&contexts.lock);
    if (allocator)
        allocator_put_away(allocator, suspended);
    return before;
}
