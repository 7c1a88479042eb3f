/* The device made of bookkeeping: addresses only grow, memory is a number, and all work is done at
 * once, or `behind` operations later. Every call is booked with its price at the operation of the
 * trace that made it. */
#include "scripts/replay/replay.h"

#include <stdlib.h>

#define OUT_OF_MEMORY 2 /* CUDA's code for it */
#define FIRST_ADDRESS UINT64_C(0x7f0000000000)
#define GRAIN (2 * MIB)
#define LONG_NS UINT64_C(1000000000)      /* who waits so long sees all work done */
#define RANGE_ADDRESS (UINT64_C(1) << 43) /* as FIRST_ADDRESS, of at most 48 bits (page_map.h) */
#define RANGE_BYTES (UINT64_C(1) << 43)
#define RANGES_MOST 8

void replay_device_init(struct replay_device *device, uint64_t capacity, const struct costs *costs)
{
    device->capacity = capacity;
    device->next_address = FIRST_ADDRESS;
    device->costs = costs;
}

/* A price may be anything that a file says. */
static uint64_t sum_of(uint64_t one, uint64_t other)
{
    uint64_t sum;
    return __builtin_add_overflow(one, other, &sum) ? UINT64_MAX : sum;
}

/* The trace is longer than thought: two parts become one. */
static void widen(struct replay_device *device)
{
    for (unsigned i = 0; i < LEDGER_PARTS / 2; i++)
        device->cost_ns[i] = sum_of(device->cost_ns[2 * i], device->cost_ns[2 * i + 1]);
    for (unsigned i = LEDGER_PARTS / 2; i < LEDGER_PARTS; i++)
        device->cost_ns[i] = 0;
    device->log2_part++;
}

static void book(struct replay_device *device, enum call_kind call, uint64_t bytes)
{
    uint64_t cost = costs_of(device->costs, call, bytes);
    device->call[call].count++;
    device->call[call].bytes += bytes;
    device->call[call].cost_ns = sum_of(device->call[call].cost_ns, cost);
    while (device->operation >> device->log2_part >= LEDGER_PARTS)
        widen(device);
    uint64_t *part = &device->cost_ns[device->operation >> device->log2_part];
    *part = sum_of(*part, cost);
}

uint64_t replay_cost_since(const struct replay_device *device, uint64_t operation)
{
    uint64_t sum = 0;
    for (uint64_t i = operation >> device->log2_part; i < LEDGER_PARTS; i++)
        sum = sum_of(sum, device->cost_ns[i]);
    return sum;
}

/* What the driver takes for a block of `bytes`: small ones share its granules (test/sim/README.md). */
static uint64_t taken(uint64_t bytes)
{
    uint64_t grain = bytes < MIB ? 512 : GRAIN;
    return (bytes + grain - 1) / grain * grain;
}

static int segment_alloc(void *context, uint64_t bytes, uint64_t *address)
{
    struct replay_device *device = context;
    uint64_t span = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    if (taken(bytes) > device->capacity - device->used ||
        span > UINT64_MAX / 2 - device->next_address ||
        table_put(&device->segments, device->next_address, bytes)) {
        device->call[CALL_alloc].failed++;
        return OUT_OF_MEMORY;
    }
    *address = device->next_address;
    device->next_address += span;
    device->used += taken(bytes);
    book(device, CALL_alloc, bytes);
    return 0;
}

static int segment_free(void *context, uint64_t address, uint64_t bytes)
{
    struct replay_device *device = context;
    if (table_take(&device->segments, address) != bytes)
        abort(); /* the allocator gives back what it never had */
    device->used -= taken(bytes);
    book(device, CALL_free, bytes);
    return 0;
}

/* Addresses without end: what there is of them does not limit a replay. */
static int range_reserve(void *context, uint64_t *address, uint64_t *bytes)
{
    struct replay_device *device = context;
    book(context, CALL_range_reserve, 0);
    if (device->ranges == RANGES_MOST)
        return DEVICE_UNSUPPORTED;
    *address = RANGE_ADDRESS + device->ranges++ * RANGE_BYTES;
    *bytes = RANGE_BYTES;
    return 0;
}

static int range_free(void *context, uint64_t address, uint64_t bytes)
{
    (void)context, (void)address, (void)bytes;
    return 0;
}

static int chunk_create(void *context, uint64_t bytes, uint64_t *handle)
{
    struct replay_device *device = context;
    if (bytes > device->capacity - device->used) {
        device->call[CALL_chunk_create].failed++;
        return OUT_OF_MEMORY;
    }
    device->used += bytes;
    *handle = ++device->chunks;
    book(device, CALL_chunk_create, bytes);
    return 0;
}

static int chunk_release(void *context, uint64_t bytes, uint64_t handle)
{
    struct replay_device *device = context;
    (void)handle;
    device->used -= bytes;
    book(device, CALL_chunk_release, bytes);
    return 0;
}

/* Access is given once to each handle that is mapped, and costs by their number, whatever one call has; an
 * unmap, too (test/gpu/RECORD.md). */
static int chunk_map(void *context, uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct replay_device *device = context;
    (void)handle;
    int code = table_put(&device->mappings, address, bytes);
    if (code > 0)
        abort(); /* something is mapped there */
    if (code < 0)
        return OUT_OF_MEMORY;
    book(device, CALL_chunk_map, bytes);
    book(device, CALL_chunk_allow, bytes);
    return 0;
}

static int chunk_allow(void *context, uint64_t address, uint64_t bytes)
{
    (void)context, (void)address, (void)bytes;
    return 0;
}

static int chunk_unmap(void *context, uint64_t address, uint64_t bytes)
{
    struct replay_device *device = context;
    for (uint64_t end = address + bytes, handle; address < end; address += handle) {
        handle = table_take(&device->mappings, address);
        if (!handle)
            abort(); /* nothing is */
        book(device, CALL_chunk_unmap, handle);
    }
    return 0;
}

/* An event is the operation at which it was recorded, from 1. */
static int fence_record(void *context, void **event)
{
    const struct replay_device *device = context;
    book(context, CALL_event_record, 0);
    *event = (void *)(uintptr_t)(device->operation + 1);
    return 0;
}

static int has_passed(const struct replay_device *device, const void *event)
{
    uint64_t at = (uintptr_t)event;
    return at <= device->waited_for || device->operation + 1 - at >= device->behind;
}

static int fence_query(void *context, void *event)
{
    book(context, CALL_event_query, 0);
    return has_passed(context, event) ? 0 : DEVICE_NOT_READY;
}

static int fence_wait(void *context, void *event, uint64_t timeout_ns)
{
    struct replay_device *device = context;
    book(context, CALL_event_wait, 0);
    if (timeout_ns >= LONG_NS && device->waited_for < (uintptr_t)event)
        device->waited_for = (uintptr_t)event; /* and what was recorded before has passed, too */
    return has_passed(device, event) ? 0 : DEVICE_NOT_READY;
}

static int synchronize(void *context)
{
    struct replay_device *device = context;
    book(context, CALL_synchronize, 0);
    device->waited_for = device->operation + 1;
    return 0;
}

static int failed(void *context, int code)
{
    (void)context, (void)code;
    return 0;
}

static int query_memory(void *context, uint64_t *bytes, uint64_t *total)
{
    const struct replay_device *device = context;
    *total = device->capacity;
    *bytes = device->capacity - device->used;
    return 0;
}

/* Time stands still: a replay gives the same result every time. */
static uint64_t now_ns(void)
{
    return 1;
}

static uint64_t thread_id(void)
{
    return 1;
}

const struct device_ops replay_device_ops = {
    .out_of_memory = OUT_OF_MEMORY,
    .costs = &device_costs,
    .segment_alloc = segment_alloc,
    .segment_free = segment_free,
    .range_reserve = range_reserve,
    .range_free = range_free,
    .chunk_create = chunk_create,
    .chunk_release = chunk_release,
    .chunk_map = chunk_map,
    .chunk_allow = chunk_allow,
    .chunk_unmap = chunk_unmap,
    .fence_record = fence_record,
    .fence_query = fence_query,
    .fence_wait = fence_wait,
    .synchronize = synchronize,
    .failed = failed,
    .query_memory = query_memory,
    .now_ns = now_ns,
    .thread_id = thread_id,
};
