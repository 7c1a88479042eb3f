#include "fake_device.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 300000
#define FIRST_ADDRESS UINT64_C(0x7f0000000000)

struct mark {
    uint64_t number;
    int users; /* threads asking about it */
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t segment_at[MOST], segment_size[MOST], next_address = FIRST_ADDRESS;
static size_t segments;
static struct mark mark_at[MOST];
static _Atomic size_t marks;
static _Atomic uint64_t now, threads;
static _Thread_local uint64_t caller, self;

void fake_init(struct fake_device *device, uint64_t capacity)
{
    memset(device, 0, sizeof *device);
    device->capacity = capacity;
    device->instant = 1;
    pthread_mutex_init(&device->lock, NULL);
}

void fake_call_as(uint64_t thread)
{
    caller = thread;
}

uint64_t fake_clock(void)
{
    return atomic_load(&now);
}

void fake_advance(uint64_t ns)
{
    atomic_fetch_add(&now, ns);
}

static void fail(const char *why)
{
    fprintf(stderr, "fake device: %s\n", why);
    abort();
}

/* Counts the call and lets others in; returns the code that the test has set for it, with the lock
 * held. */
static int begin(struct fake_device *device, enum fake_call call)
{
    if (device->meanwhile)
        device->meanwhile(device, call, 0);
    pthread_mutex_lock(&device->lock);
    device->calls[call]++;
    return device->code[call];
}

static int end(struct fake_device *device, enum fake_call call, int code)
{
    pthread_mutex_unlock(&device->lock);
    if (device->meanwhile)
        device->meanwhile(device, call, 1);
    return code;
}

static void use(struct fake_device *device, uint64_t bytes)
{
    device->used += bytes;
    if (device->used > device->most_used)
        device->most_used = device->used;
}

static int fake_alloc(void *context, uint64_t bytes, uint64_t *address)
{
    struct fake_device *device = context;
    int code = begin(device, FAKE_ALLOC);
    device->alloc_bytes = bytes;
    if (!code && (device->calls[FAKE_ALLOC] == device->failing_alloc ||
                  bytes > device->capacity - device->used))
        code = FAKE_OOM;
    if (code)
        return end(device, FAKE_ALLOC, code);
    use(device, bytes);
    pthread_mutex_lock(&table_lock);
    if (segments == MOST)
        fail("too many segments");
    *address = next_address;
    next_address += (bytes + 0x1fffff) & ~UINT64_C(0x1fffff);
    segment_at[segments] = *address;
    segment_size[segments++] = bytes;
    pthread_mutex_unlock(&table_lock);
    return end(device, FAKE_ALLOC, 0);
}

static size_t find(uint64_t address)
{
    size_t i = segments;
    while (i-- && segment_at[i] != address)
        ;
    return i;
}

uint64_t fake_segment(uint64_t address)
{
    pthread_mutex_lock(&table_lock);
    size_t i = find(address);
    uint64_t bytes = i < segments ? segment_size[i] : 0;
    pthread_mutex_unlock(&table_lock);
    return bytes;
}

static int fake_free(void *context, uint64_t address, uint64_t bytes)
{
    struct fake_device *device = context;
    (void)bytes;
    int code = begin(device, FAKE_FREE);
    if (code)
        return end(device, FAKE_FREE, code);
    pthread_mutex_lock(&table_lock);
    size_t i = find(address);
    if (i >= segments)
        fail("free of what was never allocated");
    device->used -= segment_size[i];
    segment_at[i] = segment_at[--segments];
    segment_size[i] = segment_size[segments];
    pthread_mutex_unlock(&table_lock);
    return end(device, FAKE_FREE, 0);
}

static int fake_record(void *context, void **event)
{
    struct fake_device *device = context;
    int code = begin(device, FAKE_RECORD);
    if (code)
        return end(device, FAKE_RECORD, code);
    if (!*event) {
        size_t i = atomic_fetch_add(&marks, 1);
        if (i >= MOST)
            fail("too many events");
        *event = &mark_at[i];
        device->events++;
    }
    struct mark *mark = *event;
    if (mark->users)
        fail("an event was marked anew while somebody asks about it");
    mark->number = ++device->recorded;
    return end(device, FAKE_RECORD, 0);
}

/* An event on an idle stream. It is no event of the context, and not counted as one. */
static int fake_control(void *context, void **event)
{
    struct fake_device *device = context;
    if (!*event) {
        size_t i = atomic_fetch_add(&marks, 1);
        if (i >= MOST)
            fail("too many events");
        *event = &mark_at[i];
    }
    ((struct mark *)*event)->number = device->busy_elsewhere ? UINT64_MAX : 0;
    return 0;
}

static int has_passed(const struct fake_device *device, const struct mark *mark)
{
    return device->instant || mark->number <= device->passed;
}

static int fake_query(void *context, void *event)
{
    struct fake_device *device = context;
    struct mark *mark = event;
    pthread_mutex_lock(&device->lock);
    mark->users++;
    pthread_mutex_unlock(&device->lock);
    int code = begin(device, FAKE_QUERY);
    mark->users--;
    if (!code && !has_passed(device, mark))
        code = DEVICE_NOT_READY;
    return end(device, FAKE_QUERY, code);
}

static int fake_wait(void *context, void *event, uint64_t timeout_ns)
{
    struct fake_device *device = context;
    struct mark *mark = event;
    pthread_mutex_lock(&device->lock);
    mark->users++;
    device->last_timeout = timeout_ns;
    pthread_mutex_unlock(&device->lock);
    int code = begin(device, FAKE_WAIT);
    mark->users--;
    if (!code && !has_passed(device, mark)) {
        if (timeout_ns == DEVICE_FOREVER && device->stuck)
            fail("waits without limit for work that never ends");
        if (timeout_ns == DEVICE_FOREVER)
            device->passed = mark->number;
        else
            atomic_fetch_add(&now, timeout_ns);
    }
    if (!code && !has_passed(device, mark))
        code = DEVICE_NOT_READY;
    return end(device, FAKE_WAIT, code);
}

static int fake_synchronize(void *context)
{
    struct fake_device *device = context;
    int code = begin(device, FAKE_SYNC);
    if (!code)
        device->passed = device->recorded;
    return end(device, FAKE_SYNC, code);
}

static int fake_failed(void *context, int code)
{
    begin(context, FAKE_FAILED);
    return end(context, FAKE_FAILED, code == FAKE_BROKEN);
}

static int fake_query_memory(void *context, uint64_t *bytes, uint64_t *total)
{
    struct fake_device *device = context;
    pthread_mutex_lock(&device->lock);
    device->looks++;
    uint64_t taken = device->used + device->others;
    *bytes = taken < device->capacity ? device->capacity - taken : 0;
    *total = device->capacity;
    pthread_mutex_unlock(&device->lock);
    return 0;
}

static uint64_t fake_now(void)
{
    return atomic_fetch_add(&now, 1);
}

static uint64_t fake_thread(void)
{
    if (!self)
        self = UINT64_C(1) << 32 | (atomic_fetch_add(&threads, 1) + 1);
    return caller ? caller : self;
}

#define MOST_SLOTS 65536
#define RANGE_BYTES (UINT64_C(1) << 40)

/* Which chunk is mapped where. A chunk's handle is never used again. */
static struct {
    uint64_t address, handle, bytes;
    int access;
} slot[MOST_SLOTS];
static uint64_t next_range = UINT64_C(1) << 44, next_handle;

static int begin_numbered(struct fake_device *device, enum fake_call call)
{
    int code = begin(device, call);
    return !code && device->failing == call && device->calls[call] == device->failing_number
               ? FAKE_INVALID
               : code;
}

static int fake_reserve(void *context, uint64_t *address, uint64_t *bytes)
{
    struct fake_device *device = context;
    int code = begin_numbered(device, FAKE_RESERVE);
    *address = next_range;
    *bytes = RANGE_BYTES;
    next_range += RANGE_BYTES;
    device->ranges += !code;
    return end(device, FAKE_RESERVE, code);
}

static int fake_range_free(void *context, uint64_t address, uint64_t bytes)
{
    struct fake_device *device = context;
    (void)address, (void)bytes;
    device->ranges--;
    return 0;
}

static int fake_create(void *context, uint64_t bytes, uint64_t *handle)
{
    struct fake_device *device = context;
    int code = begin_numbered(device, FAKE_CREATE);
    if (!code && bytes > device->capacity - device->used)
        code = FAKE_OOM;
    if (!code) {
        use(device, bytes);
        *handle = ++next_handle;
    }
    return end(device, FAKE_CREATE, code);
}

static size_t slot_at(uint64_t address)
{
    size_t i = 0;
    while (i < MOST_SLOTS && slot[i].address != address)
        i++;
    return i;
}

/* Whole mappings side by side, as the driver wants them. */
static void check_run(uint64_t address, uint64_t bytes, const char *what)
{
    for (uint64_t done = 0, i; done < bytes || !bytes; done += slot[i].bytes)
        if ((i = slot_at(address + done)) == MOST_SLOTS || slot[i].bytes > bytes - done)
            fail(what);
}

static int fake_release(void *context, uint64_t bytes, uint64_t handle)
{
    struct fake_device *device = context;
    int code = begin_numbered(device, FAKE_RELEASE);
    for (size_t i = 0; i < MOST_SLOTS; i++)
        if (slot[i].handle == handle)
            fail("a chunk is released that is mapped");
    if (!code)
        device->used -= bytes;
    return end(device, FAKE_RELEASE, code);
}

static int fake_map(void *context, uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct fake_device *device = context;
    int code = begin_numbered(device, FAKE_MAP);
    size_t i = slot_at(0);
    if (slot_at(address) < MOST_SLOTS || i == MOST_SLOTS || address % (2 << 20) || !bytes ||
        !handle)
        fail("a chunk is mapped where one is");
    if (!code) {
        slot[i].address = address;
        slot[i].handle = handle;
        slot[i].bytes = bytes;
        slot[i].access = 0;
        device->mapped++;
    }
    return end(device, FAKE_MAP, code);
}

static int fake_allow(void *context, uint64_t address, uint64_t bytes)
{
    struct fake_device *device = context;
    int code = begin_numbered(device, FAKE_ALLOW);
    check_run(address, bytes, "access to what is not mapped");
    for (size_t i = 0; i < MOST_SLOTS && !code; i++)
        slot[i].access |= slot[i].address >= address && slot[i].address < address + bytes;
    return end(device, FAKE_ALLOW, code);
}

static int fake_unmap(void *context, uint64_t address, uint64_t bytes)
{
    struct fake_device *device = context;
    int code = begin_numbered(device, FAKE_UNMAP);
    check_run(address, bytes, "nothing is mapped there");
    for (size_t i = 0; i < MOST_SLOTS && !code; i++)
        if (slot[i].address >= address && slot[i].address < address + bytes) {
            slot[i].address = slot[i].handle = 0;
            device->mapped--;
        }
    return end(device, FAKE_UNMAP, code);
}

void fake_print(const struct fake_device *device)
{
    printf(" %" PRIu64, device->mapped);
    for (size_t i = 0, left = device->mapped; left; i++)
        if (slot[i].address) {
            printf(" %" PRIu64 " %" PRIu64 " %" PRIu64 " %d", slot[i].address, slot[i].handle,
                   slot[i].bytes, slot[i].access);
            left--;
        }
    printf(" %zu", segments);
    for (size_t i = 0; i < segments; i++)
        printf(" %" PRIu64 " %" PRIu64, segment_at[i], segment_size[i]);
}

const struct device_ops fake_ops = {
    .out_of_memory = FAKE_OOM,
    .costs = &device_costs,
    .segment_alloc = fake_alloc,
    .segment_free = fake_free,
    .range_reserve = fake_reserve,
    .range_free = fake_range_free,
    .chunk_create = fake_create,
    .chunk_release = fake_release,
    .chunk_map = fake_map,
    .chunk_allow = fake_allow,
    .chunk_unmap = fake_unmap,
    .fence_record = fake_record,
    .fence_query = fake_query,
    .fence_wait = fake_wait,
    .control_record = fake_control,
    .synchronize = fake_synchronize,
    .failed = fake_failed,
    .query_memory = fake_query_memory,
    .now_ns = fake_now,
    .thread_id = fake_thread,
};
