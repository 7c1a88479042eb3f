/* Requests and frees: answered by the cache where that is correct, else by the driver. */
#include "interpose/memory/memory.h"

#include <string.h>

#include "interpose/call_sites/stack.h"
#include "interpose/context/capture.h"
#include "interpose/context/context.h"
#include "interpose/context/device_ops.h"
#include "interpose/context/mappings.h"
#include "interpose/memory/faults.h"
#include "interpose/memory/fill.h"
#include "interpose/memory/oom.h"
#include "interpose/memory/refuse.h"
#include "interpose/memory/slack.h"
#include "interpose/context/group_limit.h"
#include "interpose/memory/uncached.h"
#include "interpose/resolve/real_driver.h"
#include "interpose/memory/retry.h"
#include "interpose/stream/submit.h"
#include "interpose/process/gate.h"
#include "interpose/process/thread_exit.h"

static struct WIPED requests {
    _Atomic uint64_t rows[PAGE_CACHES / 64]; /* bit i: a thread cache owns row i of the page */
    _Atomic uint64_t late_frees;
} requests;
static const struct wiped wiped WIPED_ENTRY = {&requests, sizeof requests};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The free memory that the driver would report without this library; it reports `available` now. */
static uint64_t natively_free(const struct device_stats *stats, uint64_t available)
{
    uint64_t allocated = stats_current_all(stats, STAT_allocated_bytes);
    uint64_t reserved = stats_current_all(stats, STAT_reserved_bytes);
    uint64_t limit = stats_get(stats, COUNTER_memory_limit_bytes);
    uint64_t native = available + (reserved > allocated ? reserved - allocated : 0);
    return limit ? least(native, limit > allocated ? limit - allocated : 0) : native;
}

/* Notes the driver's answer to a request that the allocator did not try. */
static CUresult answered_for(const struct context *context, uint64_t bytes, CUresult result)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY && context) {
        process_inside++;
        allocator_refused(context->allocator, bytes);
        process_inside--;
        oom_note(context, bytes);
    }
    return result;
}

/* The calling thread's cache. */
static _Thread_local struct {
    int begun_in; /* a life: the child of a bare clone has its parent's */
    int has;
    unsigned row;
} cached;

static int take_row(unsigned *row)
{
    for (unsigned word = 0; word < PAGE_CACHES / 64; word++) {
        uint64_t taken = atomic_load(&requests.rows[word]);
        while (~taken) {
            uint64_t bit = ~taken & (taken + 1);
            if (atomic_compare_exchange_weak(&requests.rows[word], &taken, taken | bit)) {
                *row = word * 64 + (unsigned)__builtin_ctzll(bit);
                return 0;
            }
        }
    }
    return -1;
}

static void give_row(unsigned row)
{
    atomic_fetch_and(&requests.rows[row / 64], ~(UINT64_C(1) << row % 64));
}

static void thread_begins(void)
{
    if (process.watched) /* a thread cache would hide requests */
        return;
    cached.begun_in = process.life;
    cached.has = 0;
    if (!thread_exit_watch() || take_row(&cached.row))
        return;
    if (domain_thread_begins(process.domain, &process.page->cache[cached.row]))
        give_row(cached.row);
    else
        cached.has = 1;
}

void memory_thread_ends(void)
{
    if (cached.has && process_serving() && cached.begun_in == process.life) {
        process_inside++;
        domain_thread_ends(process.domain);
        process_inside--;
        give_row(cached.row);
    }
    /* And it gets no new cache, though the program's destructors may still free. */
    cached.begun_in = process.life;
    cached.has = 0;
}

/* Memory of the driver's own, given to the program: counted as an uncached allocation. */
static CUresult forwarded(CUresult result, const CUdeviceptr *pointer, size_t bytes)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    process_count(COVERAGE_forwarded_allocations);
    return uncached_made(result, UNCACHED_device, SPACE_address, *pointer, bytes);
}

static CUresult forward_alloc(CUdeviceptr *pointer, size_t bytes)
{
    CUresult result;
    RETRIED_FOR(result, bytes, 0, real()->cuMemAlloc_v2(pointer, bytes));
    return forwarded(result, pointer, bytes);
}

static inline CUresult take(struct context *context, CUdeviceptr *pointer, size_t bytes)
{
    uint64_t address = 0;
    process_inside++;
    int code = allocator_malloc(context->allocator, bytes, &address);
    process_inside--;
    if (code == ALLOCATOR_PASS)
        return answered_for(context, bytes, forward_alloc(pointer, bytes));
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        oom_note(context, bytes);
    *pointer = code ? 0 : address; /* as the driver does */
    return (CUresult)code;
}

/* A request that options look at. */
static CUresult watched(struct context *context, CUdeviceptr *pointer, size_t bytes)
{
    if (refuses(UNCACHED_device, bytes)) {
        *pointer = 0;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    PASS_GATE;
    CUresult result = take(context, pointer, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (fill_block(context, *pointer, bytes)) {
        slack_fill(context, *pointer);
        return result;
    }
    process_inside++;
    domain_free(process.domain, *pointer, FREED_ASYNC); /* its fill is yet to come */
    process_inside--;
    return take(context, pointer, bytes);
}

/* A request that the thread's cache does not serve. */
static inline CUresult alloc_further(struct context *context, CUdeviceptr *pointer, size_t bytes)
{
    if (cached.begun_in != process.life) {
        if (process.watched)
            return watched(context, pointer, bytes);
        process_inside++;
        thread_begins();
        process_inside--;
    }
    return take(context, pointer, bytes);
}

DIRECT CUresult memory_alloc(CUdeviceptr *pointer, size_t bytes)
{
    struct context *context;
    uint64_t address = 0;
    if (!process_serving() || !pointer || !bytes || !(context = context_current()))
        return forward_alloc(pointer, bytes);
    if ((address = allocator_hit_alone(context->allocator, bytes))) {
        *pointer = address;
        return CUDA_SUCCESS;
    }
    int asked_here = process.sites && call_sites_look((unsigned)context->device, bytes);
    CUresult result = alloc_further(context, pointer, bytes);
    if (asked_here)
        domain_asked_at(0);
    return result;
}

/* Takes from the cache with the allocator's lock, unless memory_alloc is to look at the call site. */
DIRECT CUdeviceptr memory_hit_locked(struct allocator *allocator, size_t bytes)
{
    uint64_t address = 0;
    if (process.sites && !asked_pass(bytes))
        return 0;
    process_inside++;
    int code = allocator_hit(allocator, bytes, &address);
    process_inside--;
    if (code && process.sites)
        asked_return(bytes);
    return code ? 0 : address;
}

CUdeviceptr memory_hit_again(size_t bytes)
{
    const struct context *context = bytes - 1 < MIB ? context_current() : NULL;
    return context ? memory_hit_locked(context->allocator, bytes) : 0;
}

/* The driver's pitch: the width rounded up to the device's texture alignment. test/gpu compares it
 * with the driver for all element sizes. */
static int pitch_of(const struct context *context, size_t width, size_t *pitch)
{
    int alignment = 0;
    real()->cuDeviceGetAttribute(&alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
                                 context->device);
    if (alignment <= 0 || width > SIZE_MAX / 2)
        return -1;
    *pitch = (width + (size_t)alignment - 1) / (size_t)alignment * (size_t)alignment;
    return 0;
}

CUresult memory_alloc_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned element)
{
    struct context *context;
    size_t wanted = 0, bytes;
    if (!process_serving() || !pointer || !pitch || !width || !height ||
        (element != 4 && element != 8 && element != 16) || !(context = context_current()) ||
        pitch_of(context, width, &wanted) || __builtin_mul_overflow(wanted, height, &bytes)) {
        CUresult result;
        if (__builtin_mul_overflow(width, height, &bytes))
            bytes = SIZE_MAX;
        RETRIED_FOR(result, bytes, 0,
                    real()->cuMemAllocPitch_v2(pointer, pitch, width, height, element));
        answered_for(process_serving() ? context_current() : NULL, UINT64_MAX, result);
        return forwarded(result, pointer, result ? 0 : *pitch * height);
    }
    CUresult result = memory_alloc(pointer, bytes);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
        *pitch = wanted; /* as the driver does, which sets it before it asks for memory */
    return result;
}

/* A free that options look at. */
__attribute__((cold, noinline)) static void look_before_free(CUdeviceptr pointer,
                                                             enum free_kind kind)
{
    slack_check(pointer, kind == FREED_NATIVE);
    faults_remember(pointer);
}

/* A block that the allocator did not free is the driver's to free, or its free is a fault. */
__attribute__((cold, noinline)) static int not_freed(CUdeviceptr pointer, enum free_kind kind,
                                                     int late, int code)
{
    if (code == ALLOCATOR_PASS && kind == FREED_NATIVE)
        return (int)real()->cuMemFree_v2(pointer);
    if (code == ALLOCATOR_INVALID && !late)
        faults_note_free(kind == FREED_ASYNC ? "cuMemFreeAsync" : "cuMemFree_v2", pointer, 1);
    return code;
}

static inline __attribute__((always_inline)) int free_block(CUdeviceptr pointer, int state,
                                                            enum free_kind kind)
{
    int late = state == PROCESS_EXITING;
    if (late && process_inside) /* exit has interrupted this thread in the allocator */
        return CUDA_SUCCESS;
    if (__builtin_expect(process.watched, 0) && !late)
        look_before_free(pointer, kind);
    process_inside++;
    if (cached.begun_in != process.life && !late)
        thread_begins();
    int code = domain_free(process.domain, pointer, late ? FREED_LATE : kind);
    process_inside--;
    if (late && code == 0)
        atomic_fetch_add(&requests.late_frees, 1);
    return code && code != ALLOCATOR_UNKNOWN ? not_freed(pointer, kind, late, code) : code;
}

/* The answer of memory_free_early, which memory_free gives when cudart has passed the free on. */
static _Thread_local struct {
    CUdeviceptr pointer;
    CUresult result;
} answered;

static CUresult forward_free(CUdeviceptr pointer)
{
    struct uncached_free freed;
    uncached_free_begin(&freed, SPACE_address, pointer);
    CUresult result = uncached_free_end(&freed, "cuMemFree_v2", real()->cuMemFree_v2(pointer));
    if (result == CUDA_SUCCESS && pointer && freed.what == FREES_UNKNOWN && process_serving())
        process_count(COVERAGE_unseen_frees);
    return result;
}

DIRECT CUresult memory_free(CUdeviceptr pointer)
{
    if (answered.pointer && answered.pointer == pointer) {
        answered.pointer = 0;
        return answered.result;
    }
    if (memory_free_alone(pointer))
        return CUDA_SUCCESS;
    int state = process_state();
    if (state == PROCESS_IDLE)
        return real()->cuMemFree_v2(pointer);
    int code = free_block(pointer, state, FREED_NATIVE);
    if (code == ALLOCATOR_UNKNOWN)
        return forward_free(pointer);
    return code == ALLOCATOR_INVALID ? CUDA_ERROR_INVALID_VALUE : (CUresult)code;
}

DIRECT int memory_free_early(CUdeviceptr pointer)
{
    int state = process_state();
    if (state == PROCESS_IDLE || !pointer)
        return 1;
    int code = free_block(pointer, state, FREED_NATIVE);
    if (!code)
        return 0;
    if (code != ALLOCATOR_UNKNOWN) {
        answered.pointer = pointer;
        answered.result = code == ALLOCATOR_INVALID ? CUDA_ERROR_INVALID_VALUE : (CUresult)code;
    }
    return 1;
}

void memory_free_answered(void)
{
    answered.pointer = 0;
}

/* Natively the memory is free when `stream` gets there. A fence of the whole context covers
 * that. */
CUresult memory_free_async(CUdeviceptr pointer, CUstream stream, int per_thread)
{
    const struct real_driver *driver = real();
    int state = process_state(), code = ALLOCATOR_UNKNOWN;
    /* While the stream is captured, the free becomes a graph node, which the driver allows only for
     * memory of an allocation node. */
    int captured = capture_active() && capture_is_on(stream, per_thread);
    CUresult wrong =
        state == PROCESS_SERVING ? capture_stream_error(stream, per_thread) : CUDA_SUCCESS;
    if (wrong)
        return wrong;
    if (state != PROCESS_IDLE && !captured)
        code = free_block(pointer, state, FREED_ASYNC);
    if (code == ALLOCATOR_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    if (code != ALLOCATOR_UNKNOWN && code != ALLOCATOR_PASS)
        return (CUresult)code;
    struct uncached_free freed;
    freed.what = FREES_UNKNOWN;
    freed.block.key = 0;
    if (!captured)
        uncached_free_begin(&freed, SPACE_address, pointer);
    submit_begin(SUBMISSION_pool_operations, stream, per_thread);
    CUresult result = per_thread ? driver->cuMemFreeAsync_ptsz(pointer, stream)
                                 : driver->cuMemFreeAsync(pointer, stream);
    submit_end(result, stream, per_thread, 0);
    return uncached_free_end(&freed, "cuMemFreeAsync", result);
}

CUresult memory_info(size_t *available, size_t *total)
{
    CUresult result = real()->cuMemGetInfo_v2(available, total);
    CUcontext handle = NULL;
    const struct context *context;
    if (result != CUDA_SUCCESS || !process_serving() || !available ||
        real()->cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !(context = context_noted(handle)))
        return result;
    uint64_t away = mapping_away(context->device); /* the program still has this memory */
    *available = *available > away ? *available - away : 0;
    const struct device_stats now = oom_numbers(context);
    uint64_t native = natively_free(&now, *available), room = group_limit_room(context, 1);
    if (room < *available)
        native = natively_free(&now, room);
    *available = total ? least(native, *total) : native;
    return result;
}

uint64_t memory_late_frees(void)
{
    return atomic_load(&requests.late_frees) + uncached_late_frees();
}

/* A page table has 8 bytes for each page of the host. */
#define TABLES_PART 512

int memory_retry(uint64_t bytes, int host)
{
    if (!process_serving())
        return 0;
    process_inside++;
    int submits = submit_is_in_flight(); /* nobody moves memory before that has ended */
    if (submits)
        gate_own(1);
    if (host)
        bytes = 2 * MIB + bytes / TABLES_PART;
    int helps = domain_could_release(process.domain, bytes, host);
    uint64_t released = helps ? domain_empty_cache(process.domain, 1) : 0;
    if (host && process.pinned)
        released += domain_empty_cache(process.pinned, 1);
    if (submits)
        gate_own(0);
    process_inside--;
    return released != 0;
}
