/* Pinned host memory: a pool of its own for each context and flags.
 *
 * CUDA's cudaFreeHost waits for the device. Ours waits only for what the program would see: copies
 * to host memory, and host functions. The block becomes reusable when all work of all contexts that
 * was submitted before the free has finished (allocator/everywhere.h), since the host may write to
 * it at once. It is one context's memory all the same, and ends with that context.
 *
 * The flags are those of the driver's allocation below, so its answers about them stay right. */
#include "interpose/memory/pinned.h"

#include <pthread.h>

#include "allocator/base/policy.h"
#include "allocator/base/slab.h"
#include "allocator/everywhere.h"
#include "allocator/share.h"
#include "interpose/context/context.h"
#include "interpose/context/device_ops.h"
#include "interpose/process/private_files.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"
#include "stats/os/host_memory.h"

#define KNOWN_FLAGS                                                                                \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)

/* Pools are never given back: a call of an ended one may still be under way. */
struct pool {
    struct pool *next;
    CUcontext handle;
    unsigned flags;
    struct allocator *allocator;
};

static struct WIPED pinned {
    pthread_mutex_t lock;
    struct pool *first;
    struct slab pools;
    uint64_t total; /* bytes of the host */
} pinned;
static const struct wiped wiped WIPED_ENTRY = {&pinned, sizeof pinned};

static uint64_t name_of(CUcontext handle)
{
    return (uint64_t)(uintptr_t)handle;
}

static int segment_alloc(void *device, uint64_t bytes, uint64_t *address)
{
    const struct pool *pool = device;
    struct driver_visit visit;
    void *host = NULL;
    CUresult result = driver_enter(pool->handle, &visit);
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = real()->cuMemHostAlloc(&host, bytes, pool->flags);
    driver_leave(&visit);
    *address = (uint64_t)(uintptr_t)host;
    return (int)result;
}

static int segment_free(void *device, uint64_t address, uint64_t bytes)
{
    const struct pool *pool = device;
    struct driver_visit visit;
    (void)bytes;
    CUresult result = driver_enter(pool->handle, &visit);
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = real()->cuMemFreeHost((void *)(uintptr_t)address);
    driver_leave(&visit);
    return (int)result;
}

static int fence_record(void *device, void **event)
{
    const struct pool *pool = device;
    return context_note_all() ? everywhere_record(process.domain, name_of(pool->handle), event)
                              : DEVICE_DEFERRED;
}

static int fence_wait(void *device, void *event, uint64_t timeout_ns)
{
    const struct pool *pool = device;
    return everywhere_wait(process.domain, name_of(pool->handle), event, timeout_ns);
}

static int fence_query(void *device, void *event)
{
    return fence_wait(device, event, 0);
}

static int synchronize(void *device)
{
    const struct pool *pool = device;
    return context_note_all() ? everywhere_synchronize(process.domain, name_of(pool->handle))
                              : DEVICE_DEFERRED;
}

static int failed(void *device, int code)
{
    (void)device;
    return driver_is_lasting(code);
}

/* The driver is asked in any case. */
static int query_memory(void *device, uint64_t *bytes, uint64_t *total)
{
    (void)device;
    *bytes = *total = 0;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static uint64_t now_ns(void)
{
    return driver_ops.now_ns();
}

static const struct device_ops pinned_ops = {
    .out_of_memory = CUDA_ERROR_OUT_OF_MEMORY,
    .costs = &device_costs,
    .segment_alloc = segment_alloc,
    .segment_free = segment_free,
    .fence_record = fence_record,
    .fence_query = fence_query,
    .fence_wait = fence_wait,
    .synchronize = synchronize,
    .failed = failed,
    .query_memory = query_memory,
    .now_ns = now_ns,
    .thread_id = process_thread_id,
};

/* Where the system does not say how much memory there is, the total stays 0. */
static void look_at_host(void *host)
{
    struct host_memory memory;
    if (host_memory_read(&memory) == 0)
        *(struct host_memory *)host = memory;
}

void pinned_begin(void)
{
    const struct options *given = &process.config.options;
    struct host_memory memory = {0};
    struct options options;
    if (!given->pinned || !given->cache)
        return;
    files_run(look_at_host, &memory);
    if (!memory.total)
        return;
    options_default(&options);
    options.expandable = EXPANDABLE_FALSE;
    options.free_mode = given->free_mode;
    options.idle_return = given->idle_return;
    options.page_bytes = given->page_bytes;
    options.large_segment_bytes = 2 * MIB; /* as large as the driver's own allocations would be */
    pinned.total = memory.total;
    options.memory_limit = pinned.total / policy.pinned_part;
    process.pinned = domain_create(&options);
}

void pinned_look_at_host(void)
{
    struct host_memory memory = {0};
    const struct device_stats *stats = process.pinned ? &process.page->pinned : NULL;
    if (!stats || stats_current_all(stats, STAT_reserved_bytes) ==
                      stats_current_all(stats, STAT_active_bytes))
        return;
    files_run(look_at_host, &memory);
    if (memory.available < memory.total / policy.host_part)
        domain_empty_cache(process.pinned, 0);
}

static struct pool *find(CUcontext handle, unsigned flags)
{
    struct pool *pool = pinned.first;
    while (pool && (pool->handle != handle || pool->flags != flags))
        pool = pool->next;
    return pool;
}

static struct pool *make(CUcontext handle, unsigned flags)
{
    pinned.pools.item_bytes = sizeof(struct pool);
    struct pool *pool = slab_take(&pinned.pools);
    if (!pool)
        return NULL;
    pool->handle = handle;
    pool->flags = flags;
    pool->allocator = allocator_create(process.pinned, &pinned_ops, pool, name_of(handle), 0,
                                       &process.page->pinned, pinned.total);
    if (!pool->allocator) {
        slab_give(&pinned.pools, pool);
        return NULL;
    }
    pool->next = pinned.first;
    pinned.first = pool;
    return pool;
}

/* The pool that this thread used last, valid while the generation of contexts is the same. */
static _Thread_local struct {
    const struct context *context;
    uint64_t generation;
    unsigned flags;
    struct allocator *allocator;
} last;

static struct allocator *allocator_of(const struct context *context, uint64_t generation,
                                      unsigned flags)
{
    struct pool *pool = NULL;
    if (last.context == context && last.generation == generation && last.flags == flags)
        return last.allocator;
    pthread_mutex_lock(&pinned.lock);
    CUcontext handle = context->handle;
    /* A context that ends is suspended first; then pinned_context_ends takes the lock. */
    if (!atomic_load(&context->suspended) && handle && !(pool = find(handle, flags)))
        pool = make(handle, flags);
    pthread_mutex_unlock(&pinned.lock);
    if (!pool)
        return NULL;
    last.context = context;
    last.generation = generation;
    last.flags = flags;
    last.allocator = pool->allocator;
    return pool->allocator;
}

int pinned_alloc(void **pointer, size_t bytes, unsigned flags)
{
    const struct context *context;
    struct allocator *allocator;
    uint64_t address = 0;
    if (!process.pinned || !pointer || !bytes || flags & ~(unsigned)KNOWN_FLAGS ||
        !process_serving())
        return 0;
    uint64_t generation = atomic_load(&contexts.generation);
    process_inside++;
    int code =
        (context = context_current()) && (allocator = allocator_of(context, generation, flags))
            ? allocator_malloc(allocator, bytes, &address)
            : ALLOCATOR_PASS;
    process_inside--;
    if (code)
        return 0;
    *pointer = (void *)(uintptr_t)address;
    return 1;
}

/* As the free of a block at exit (memory.c, free_block). */
static int free_at_exit(uint64_t address)
{
    if (process_inside) /* exit has interrupted this thread in the allocator */
        return 0;
    process_inside++;
    int code = domain_free(process.pinned, address, FREED_LATE);
    process_inside--;
    return code;
}

static int free_block(uint64_t address)
{
    struct block_place place;
    int idle = 0, code, error = 0;
    process_inside++;
    code = domain_find(process.pinned, address, &place);
    if (code == 0)
        error = everywhere_settle(process.domain, place.context, &idle);
    if (code != ALLOCATOR_UNKNOWN)
        code = domain_free(process.pinned, address, idle ? FREED_IDLE : FREED_NATIVE);
    process_inside--;
    return code ? code : error;
}

int pinned_free(void *pointer, CUresult *result, int *gone)
{
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    int state = process_state();
    if (!process.pinned || !pointer || state == PROCESS_IDLE)
        return 0;
    int code = state == PROCESS_EXITING ? free_at_exit(address) : free_block(address);
    if (code == ALLOCATOR_UNKNOWN)
        return 0;
    *gone = code != ALLOCATOR_INVALID;
    *result = *gone ? (CUresult)code : CUDA_ERROR_INVALID_VALUE;
    return 1;
}

void pinned_context_ends(CUcontext handle)
{
    struct pool *ended = NULL;
    if (!process.pinned || !handle)
        return;
    pthread_mutex_lock(&pinned.lock);
    for (struct pool **link = &pinned.first, *pool; (pool = *link);)
        if (pool->handle == handle) {
            *link = pool->next;
            pool->next = ended;
            ended = pool;
        } else {
            link = &pool->next;
        }
    pthread_mutex_unlock(&pinned.lock);
    for (struct pool *pool = ended; pool; pool = pool->next) {
        allocator_forget(pool->allocator);
        allocator_bury(pool->allocator);
    }
}

void pinned_suspend(CUcontext handle, int suspended)
{
    if (!process.pinned || !handle)
        return;
    pthread_mutex_lock(&pinned.lock);
    for (struct pool *pool = pinned.first; pool; pool = pool->next)
        if (pool->handle == handle)
            allocator_put_away(pool->allocator, suspended);
    pthread_mutex_unlock(&pinned.lock);
}
