/* Our own driver calls. They use the saved real pointers, make the right context current, and relax
 * this thread's capture mode: a call that is legal without captures must not invalidate the
 * program's capture. */
#include "interpose/context/device_ops.h"

#include <time.h>

#include "interpose/context/capture.h"
#include "interpose/context/context.h"
#include "interpose/context/group_limit.h"
#include "interpose/context/mappings.h"
#include "interpose/context/neighbours.h"
#include "interpose/context/virtual_memory.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "stats/os/pause.h"

CUresult driver_enter(CUcontext handle, struct driver_visit *visit)
{
    CUcontext current = NULL;
    CUresult result = CUDA_SUCCESS;
    real()->cuCtxGetCurrent(&current);
    visit->pushed = current != handle;
    if (visit->pushed)
        result = context_push(handle);
    if (result != CUDA_SUCCESS)
        return result;
    visit->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    real()->cuThreadExchangeStreamCaptureMode(&visit->mode);
    return CUDA_SUCCESS;
}

void driver_leave(struct driver_visit *visit)
{
    real()->cuThreadExchangeStreamCaptureMode(&visit->mode);
    if (visit->pushed)
        context_pop();
}

static CUresult enter(const struct context *context, struct driver_visit *visit)
{
    CUcontext handle = context->handle;
    if (!handle || handle == CONTEXT_UNMADE) /* the service thread asks of all that there are */
        return CUDA_ERROR_INVALID_CONTEXT;
    return driver_enter(handle, visit);
}

static int segment_alloc(void *device, uint64_t bytes, uint64_t *address)
{
    struct context *context = device;
    struct driver_visit visit;
    CUdeviceptr pointer = 0;
    if (!group_limit_claim(context, &context->in_segments, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = enter(context, &visit);
    if (result == CUDA_SUCCESS) {
        result = real()->cuMemAlloc_v2(&pointer, bytes);
        driver_leave(&visit);
    }
    if (result != CUDA_SUCCESS)
        group_limit_give(context, &context->in_segments, bytes);
    *address = pointer;
    return (int)result;
}

static void segment_left(void *device, uint64_t bytes)
{
    struct context *context = device;
    group_limit_give(context, &context->in_segments, bytes);
}

static int segment_free(void *device, uint64_t address, uint64_t bytes)
{
    struct driver_visit visit;
    CUresult result = enter(device, &visit);
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = real()->cuMemFree_v2(address);
    driver_leave(&visit);
    if (result == CUDA_SUCCESS)
        segment_left(device, bytes);
    return (int)result;
}

static int unsupported(CUresult result)
{
    return result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult make_event(const struct context *context, void **event)
{
    struct driver_visit visit;
    CUresult result = enter(context, &visit);
    if (result != CUDA_SUCCESS)
        return result;
    result = real()->cuEventCreate((CUevent *)event, CU_EVENT_DISABLE_TIMING);
    driver_leave(&visit);
    return result;
}

/* Warns once, not at each try. */
static int without_events(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (process.config.options.free_mode != FREE_STRICT && !atomic_flag_test_and_set(&said)) {
        page_config_in_force(process.page, "free_mode", "strict", "the driver");
        process_warn("free_mode:strict is in force: this driver has no context events (12.5 has)");
    }
    return DEVICE_UNSUPPORTED;
}

static int fence_record(void *device, void **event)
{
    const struct context *context = device;
    if (!capture_record_begin())
        return DEVICE_DEFERRED;
    CUresult result = *event ? CUDA_SUCCESS : make_event(context, event);
    if (result == CUDA_SUCCESS)
        result = real()->cuCtxRecordEvent(context->handle, *event);
    capture_record_end();
    return unsupported(result) ? without_events() : (int)result;
}

/* Outside of captures a query needs no capture mode: the common case costs one driver call. No
 * capture begins meanwhile, since a query invalidates a capture in global mode. */
static int fence_query(void *device, void *event)
{
    struct driver_visit visit;
    CUresult result = CUDA_SUCCESS;
    int alone = capture_record_begin();
    if (!alone && (result = enter(device, &visit)) != CUDA_SUCCESS)
        return (int)result;
    result = real()->cuEventQuery(event);
    if (alone)
        capture_record_end();
    else
        driver_leave(&visit);
    return result == CUDA_ERROR_NOT_READY ? DEVICE_NOT_READY : (int)result;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int wait_for_ever(void *device, void *event)
{
    struct driver_visit visit;
    CUresult result = enter(device, &visit);
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = real()->cuEventSynchronize(event);
    driver_leave(&visit);
    return (int)result;
}

/* Makes the stream on which no work of the program runs. Of two threads one makes it. */
static CUresult own_stream(struct context *context)
{
    CUstream made = NULL, none = NULL;
    if (context->own)
        return CUDA_SUCCESS;
    CUresult result = real()->cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS && !atomic_compare_exchange_strong(&context->own, &none, made))
        real()->cuStreamDestroy_v2(made);
    return result;
}

/* On a stream of our own, made at the first call. */
static int control_record(void *device, void **event)
{
    struct context *context = device;
    struct driver_visit visit;
    CUresult result = *event ? CUDA_SUCCESS : make_event(context, event);
    if (result != CUDA_SUCCESS || (result = enter(context, &visit)) != CUDA_SUCCESS)
        return (int)result;
    result = own_stream(context);
    if (result == CUDA_SUCCESS)
        result = real()->cuEventRecord(*event, context->own);
    driver_leave(&visit);
    return (int)result;
}

#define SPIN_NS 50000 /* then sleep between queries */
#define SLEEP_NS 20000

static int fence_wait(void *device, void *event, uint64_t timeout_ns)
{
    if (timeout_ns == DEVICE_FOREVER)
        return wait_for_ever(device, event);
    uint64_t begin = now_ns();
    for (;;) {
        int code = fence_query(device, event);
        uint64_t spent = now_ns() - begin;
        if (code != DEVICE_NOT_READY || spent >= timeout_ns)
            return code;
        if (spent > SPIN_NS)
            pause_ns(SLEEP_NS);
    }
}

void driver_fence_destroy(void *device, void *event)
{
    struct driver_visit visit;
    if (enter(device, &visit) != CUDA_SUCCESS)
        return;
    real()->cuEventDestroy_v2(event);
    driver_leave(&visit);
}

static CUresult submit_fill(struct context *context, uint64_t address, uint64_t bytes,
                            uint32_t word, void *event)
{
    struct driver_visit visit;
    CUresult result = enter(context, &visit);
    if (result != CUDA_SUCCESS)
        return result;
    result = own_stream(context);
    uint64_t words = address % 4 ? 0 : bytes / 4;
    if (result == CUDA_SUCCESS && words)
        result = real()->cuMemsetD32Async(address, word, words, context->own);
    if (result == CUDA_SUCCESS && bytes - 4 * words)
        result = real()->cuMemsetD8Async(address + 4 * words, (unsigned char)word,
                                         bytes - 4 * words, context->own);
    if (result == CUDA_SUCCESS)
        result = real()->cuEventRecord(event, context->own);
    driver_leave(&visit);
    return result;
}

int driver_fill(struct context *context, uint64_t address, uint64_t bytes, uint32_t word,
                uint64_t timeout_ns)
{
    void *event = NULL;
    int code = (int)make_event(context, &event);
    if (code == 0)
        code = (int)submit_fill(context, address, bytes, word, event);
    if (code == 0)
        code = fence_wait(context, event, timeout_ns);
    if (event)
        driver_fence_destroy(context, event);
    return code;
}

int driver_read(struct context *context, uint64_t address, uint64_t bytes, void *to)
{
    struct driver_visit visit;
    CUresult result = enter(context, &visit);
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = own_stream(context);
    if (result == CUDA_SUCCESS)
        result = real()->cuMemcpyDtoHAsync_v2(to, address, bytes, context->own);
    if (result == CUDA_SUCCESS)
        result = real()->cuStreamSynchronize(context->own);
    driver_leave(&visit);
    return (int)result;
}

/* Cheap, but it would invalidate every active capture: DEVICE_DEFERRED if there is one. */
static int wait_for_context(void *device)
{
    struct driver_visit visit;
    if (!capture_record_begin())
        return DEVICE_DEFERRED;
    CUresult result = enter(device, &visit);
    if (result == CUDA_SUCCESS) {
        result = real()->cuCtxSynchronize();
        driver_leave(&visit);
    }
    capture_record_end();
    return (int)result;
}

/* Errors after which cuda.h calls the process or the context unusable, and errors of broken
 * hardware. */
int driver_is_lasting(int code)
{
    switch (code) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case 226: /* CUDA_ERROR_CONTAINED, since 12.8 */
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case 721: /* CUDA_ERROR_TENSOR_MEMORY_LEAK, since 12.9 */
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return 1;
    default:
        return 0;
    }
}

/* Waits as a native free does, by a native allocation and free: legal while a capture is active,
 * and invalidates none. */
static int wait_as_free(void *device)
{
    struct driver_visit visit;
    CUdeviceptr pointer = 0;
    CUresult result = enter(device, &visit);
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = real()->cuMemAlloc_v2(&pointer, 1);
    int full = result == CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = real()->cuMemFree_v2(pointer);
    if (result != CUDA_SUCCESS && pointer && !driver_is_lasting((int)result)) /* it still exists */
        real()->cuMemFree_v2(pointer);
    driver_leave(&visit);
    return full ? DEVICE_DEFERRED : (int)result;
}

static int synchronize(void *device)
{
    static _Atomic int no_events;
    void *event = NULL;
    int code = no_events ? DEVICE_UNSUPPORTED : fence_record(device, &event);
    if (code == DEVICE_UNSUPPORTED)
        no_events = 1;
    if (code == 0)
        code = wait_for_ever(device, event);
    else if (code != DEVICE_DEFERRED)
        code = wait_for_context(device);
    if (code && !driver_is_lasting(code)) /* a capture, perhaps one that we do not know of */
        code = wait_as_free(device);
    if (event)
        driver_fence_destroy(device, event);
    return code;
}

static int failed(void *device, int code)
{
    static _Atomic int last; /* warned once, not at each query */
    const struct context *context = device;
    if (last == code || atomic_load(&context->suspended)) /* while it ends errors are expected */
        return driver_is_lasting(code);
    last = code;
    if (driver_is_lasting(code))
        process_warn("device %d: the context is broken (error %d): from now on its memory is the "
                     "driver's",
                     context->device, code);
    else
        process_warn("device %d: waiting failed (error %d): what was freed stays pending for now",
                     context->device, code);
    return driver_is_lasting(code);
}

int driver_memory(const struct context *context, uint64_t *bytes, uint64_t *total)
{
    struct driver_visit visit;
    size_t all = 0, available = 0;
    CUresult result = enter(context, &visit);
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = real()->cuMemGetInfo_v2(&available, &all);
    driver_leave(&visit);
    *bytes = available;
    *total = all;
    return (int)result;
}

/* Within the limit of the group. */
static int query_memory(void *device, uint64_t *bytes, uint64_t *total)
{
    int code = driver_memory(device, bytes, total);
    uint64_t room = group_limit_room(device, 0);
    if (!code && room < *bytes)
        *bytes = room;
    return code;
}

/* Where the group's limit is nearer than the device's end, the memory of others is of no use. */
static int ask_others(void *device, uint64_t bytes)
{
    uint64_t available = 0, total;
    int of_group =
        driver_memory(device, &available, &total) == 0 && group_limit_room(device, 0) < available;
    return neighbours_ask(device, bytes, of_group);
}

/* Natively only synchronous memory operations are waited for, not a kernel that runs for ever; next
 * to a capture there are none. */
#define SYNC_MEMOPS_WAIT_NS UINT64_C(2000000000)

CUresult driver_sync_memops(struct context *context)
{
    struct driver_visit visit;
    unsigned flags = 0;
    void *event = NULL;
    CUresult result = enter(context, &visit);
    if (result != CUDA_SUCCESS)
        return result;
    result = real()->cuCtxGetFlags(&flags);
    int set = !(flags & CU_CTX_SYNC_MEMOPS);
    if (result == CUDA_SUCCESS && set)
        result = real()->cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS);
    driver_leave(&visit);
    if (result != CUDA_SUCCESS || !set)
        return unsupported(result) ? CUDA_ERROR_NOT_FOUND : result;
    int code = fence_record(context, &event);
    if (code == 0)
        fence_wait(context, event, SYNC_MEMOPS_WAIT_NS);
    else if (code == DEVICE_UNSUPPORTED)
        synchronize(context);
    if (event)
        driver_fence_destroy(context, event);
    return CUDA_SUCCESS;
}

const struct device_ops driver_ops = {
    .out_of_memory = CUDA_ERROR_OUT_OF_MEMORY,
    .costs = &device_costs,
    .segment_alloc = segment_alloc,
    .segment_free = segment_free,
    .segment_left = segment_left,
    .range_reserve = driver_range_reserve,
    .range_free = driver_range_free,
    .chunk_create = mapping_create,
    .chunk_release = mapping_release,
    .chunk_map = mapping_map,
    .chunk_allow = mapping_allow,
    .chunk_unmap = mapping_unmap,
    .fence_record = fence_record,
    .fence_query = fence_query,
    .fence_wait = fence_wait,
    .control_record = control_record,
    .synchronize = synchronize,
    .failed = failed,
    .query_memory = query_memory,
    .ask_others = ask_others,
    .now_ns = now_ns,
    .thread_id = process_thread_id,
};
