/* The books of uncached allocations: one table, one lock. The calls that take it are slow natively:
 * the fastest, stream-ordered ones, take a microsecond. */
#include "interpose/memory/uncached.h"

#include <pthread.h>
#include <stddef.h>

#include "allocator/base/map.h"
#include "allocator/base/slab.h"
#include "interpose/call_sites/stack.h"
#include "interpose/context/context.h"
#include "interpose/memory/faults.h"
#include "interpose/memory/oom.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

struct allocation {
    struct map_node node;
    struct uncached_block block;
};

static struct WIPED uncached {
    pthread_mutex_t lock;
    struct map known; /* struct allocation */
    struct slab nodes;
    _Atomic uint64_t ends; /* of contexts */
    _Atomic uint64_t late_frees;
    _Atomic int incomplete; /* the host had no memory for an entry */
} uncached;
static const struct wiped wiped WIPED_ENTRY = {&uncached, sizeof uncached};

/* Most entries of graph nodes and of mappings. A launch adds no node, and the entry of a destroyed
 * graph stays until its address is used otherwise. */
#define MOST_NODES (1 << 20)

/* Keys of several spaces in one map: addresses have at most 57 bits. */
static uint64_t key_of(enum uncached_space space, uint64_t key)
{
    return key ^ (uint64_t)space << 61;
}

static struct allocation *find(enum uncached_space space, uint64_t key)
{
    return (struct allocation *)map_find(&uncached.known, key_of(space, key));
}

static struct page_uncached *row_of(const struct uncached_block *block)
{
    return &process.page->others[block->kind];
}

/* live: 1: the block is one more; -1: it is gone. Caller holds the lock. */
static inline void count(const struct uncached_block *block, int live)
{
    struct page_uncached *row = row_of(block);
    uint64_t bytes = live > 0 ? block->bytes : -block->bytes;
    unsigned bin = stat_bin_of(block->bytes);
    stat_increase(&row->bytes, bytes);
    stat_raise_to(&row->peak_bytes, stat_get(&row->bytes));
    stat_increase(&row->live[bin], (uint64_t)(int64_t)live);
    stat_increase(&row->live_bytes[bin], bytes);
    if (__builtin_expect(block->site != 0, 0))
        call_sites_count(block->site, block->device, block->bytes, live);
}

/* Adds to the events. The lock is not held: this may wait for the trace. */
__attribute__((cold, noinline)) static void record(const struct uncached_block *block,
                                                   enum event_action action)
{
    int known = block->device != UNCACHED_NO_DEVICE && block->kind != UNCACHED_host;
    process_inside++;
    domain_add_event(process.domain, action, known ? block->device : EVENT_NO_DEVICE, block->key,
                     block->bytes, 1U + block->kind, site_exact(block->site));
    process_inside--;
}

static inline void recorded(const struct uncached_block *block, enum event_action action)
{
    if (__builtin_expect(page_events(process.page) != NULL, 0))
        record(block, action);
}

static void count_made(const struct uncached_block *block)
{
    stat_increase(&row_of(block)->allocated, 1);
    stat_increase(&row_of(block)->total_bytes, block->bytes);
}

/* An entry that is not in the table yet. NULL: the host has no memory. Caller holds the lock. */
static inline struct allocation *entry(enum uncached_space space, uint64_t key)
{
    uncached.nodes.item_bytes = sizeof(struct allocation);
    uncached.nodes.kept_from = offsetof(struct allocation, block);
    struct allocation *one = slab_take(&uncached.nodes);
    if (one) {
        one->node.key = key_of(space, key);
        one->block.key = key;
        one->block.space = (uint16_t)space;
    }
    return one;
}

/* Returns 1 if the entry is on the books; else it is given back. Caller holds the lock. */
static inline int put(struct allocation *one)
{
    if (!map_insert(&uncached.known, &one->node))
        return 1;
    slab_give(&uncached.nodes, one);
    return 0;
}

static inline int put_block(const struct uncached_block *block)
{
    struct allocation *one = entry(block->space, block->key);
    if (!one)
        return 0;
    one->block = *block;
    return put(one);
}

static inline void put_live(const struct uncached_block *block)
{
    struct page_uncached *row = row_of(block);
    if (put_block(block)) {
        count(block, 1);
        if (block->kind == UNCACHED_host)
            stat_raise_to(&row->peak_blocks,
                          row->allocated - row->freed - row->ended - row->unbooked);
        return;
    }
    stat_increase(&row->unbooked, 1);
    atomic_store(&uncached.incomplete, 1);
}

/* Takes an allocation out of the table. Caller holds the lock. */
static void drop(struct allocation *one)
{
    map_remove(&uncached.known, one->node.key);
    slab_give(&uncached.nodes, one);
}

static void lock(void)
{
    process_inside++;
    pthread_mutex_lock(&uncached.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&uncached.lock);
    process_inside--;
}

__attribute__((cold, noinline)) static void say_incomplete(void)
{
    if (atomic_exchange(&uncached.incomplete, 0))
        process_warn("the books of uncached memory are incomplete: the host had no memory for "
                     "them");
}

/* The current context of the thread and its device, as the driver said last. */
static _Thread_local struct {
    CUcontext context;
    uint64_t ends;
    uint16_t device;
} here;

static inline void look_here(void)
{
    CUcontext context = NULL;
    CUdevice device;
    uint64_t ends = atomic_load_explicit(&uncached.ends, memory_order_acquire);
    if (context_note.context && context_note.generation == atomic_load(&contexts.generation))
        context = context_note.handle;
    else
        real()->cuCtxGetCurrent(&context);
    if (context == here.context && ends == here.ends)
        return;
    here.context = context;
    here.ends = ends;
    here.device = context && real()->cuCtxGetDevice(&device) == CUDA_SUCCESS ? (uint16_t)device
                                                                             : UNCACHED_NO_DEVICE;
}

static inline uint32_t site_of(const struct uncached_block *block)
{
    unsigned device = block->kind == UNCACHED_host ? UNCACHED_NO_DEVICE : block->device;
    return process.sites ? call_sites_find(1U + block->kind, device, block->bytes) : 0;
}

static inline void put_made(const struct uncached_block *block)
{
    lock();
    count_made(block);
    put_live(block);
    unlock();
    recorded(block, EVENT_uncached_alloc);
    if (__builtin_expect(atomic_load_explicit(&uncached.incomplete, memory_order_relaxed), 0))
        say_incomplete();
}

static inline struct uncached_block block_here(enum uncached_kind kind, enum uncached_space space,
                                               uint64_t key, uint64_t bytes)
{
    look_here();
    return (struct uncached_block){.key = key,
                                   .bytes = bytes,
                                   .owner = (uint64_t)(uintptr_t)here.context,
                                   .device = here.device,
                                   .space = (uint16_t)space,
                                   .kind = (uint8_t)kind};
}

CUresult uncached_made(CUresult result, enum uncached_kind kind, enum uncached_space space,
                       uint64_t key, uint64_t bytes)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    struct uncached_block block = block_here(kind, space, key, bytes);
    block.site = site_of(&block);
    put_made(&block);
    return result;
}

CUresult uncached_failed(CUresult result, enum uncached_kind kind, uint64_t bytes)
{
    CUcontext handle = NULL;
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !process_serving() || process_inside)
        return result;
    real()->cuCtxGetCurrent(&handle);
    oom_note_uncached(handle ? context_noted(handle) : NULL, bytes, kind);
    return result;
}

CUresult uncached_in_graph(CUresult result, uint64_t key, uint64_t bytes)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    const struct uncached_block block = block_here(UNCACHED_graph, SPACE_graph, key, bytes);
    lock();
    struct allocation *old = find(SPACE_graph, key);
    if (old)
        drop(old);
    if (uncached.known.count < MOST_NODES)
        put_block(&block);
    unlock();
    return result;
}

/* Frees count until the end of the process, but not where its exit has interrupted this thread in
 * the library: the thread may hold the lock. */
static int frees_count(void)
{
    int state = process_state();
    return state == PROCESS_SERVING || (state == PROCESS_EXITING && !process_inside);
}

/* Takes the entry of `key` out of the table, unless it is a handle that has more holders. Caller
 * holds the lock. */
static struct allocation *take_off(struct uncached_free *freed, enum uncached_space space,
                                   uint64_t key)
{
    struct allocation *one = space == SPACE_handle ? find(space, key) : NULL;
    if (one && (--one->block.references || one->block.mappings)) {
        freed->what = FREES_REFERENCE;
        freed->block = one->block;
        return one;
    }
    one = (struct allocation *)map_remove(&uncached.known, key_of(space, key));
    if (!one)
        return NULL;
    freed->what = FREES_BLOCK;
    freed->block = one->block;
    slab_give(&uncached.nodes, one);
    count(&freed->block, -1);
    stat_increase(&row_of(&freed->block)->freed, 1);
    return one;
}

void uncached_free_begin(struct uncached_free *freed, enum uncached_space space, uint64_t key)
{
    freed->what = FREES_UNKNOWN;
    freed->block.key = key;
    if (!frees_count())
        return;
    lock();
    const struct allocation *one = take_off(freed, space, key);
    if (!one && space == SPACE_address && (one = find(SPACE_graph, key))) {
        freed->what = FREES_IN_GRAPH; /* the next launch allocates there again */
        freed->block = one->block;
    }
    unlock();
    if (freed->what == FREES_BLOCK)
        recorded(&freed->block, EVENT_uncached_free);
}

static void put_back(const struct uncached_free *freed)
{
    struct allocation *one = find(freed->block.space, freed->block.key);
    if (freed->what == FREES_REFERENCE && one) {
        one->block.references++;
        return;
    }
    struct uncached_block block = freed->block;
    if (block.space == SPACE_handle) {
        block.references++;
        block.mappings = 0; /* else it was there */
    }
    put_live(&block);
    stat_increase(&row_of(&block)->freed, (uint64_t)-1);
}

__attribute__((cold, noinline)) static CUresult unknown_freed(const struct uncached_free *freed,
                                                              const char *call, CUresult result)
{
    int is_unknown = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
                     result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (is_unknown && freed->block.key && process_serving() && !process_inside)
        faults_note_free(call, freed->block.key, 0);
    return result;
}

CUresult uncached_free_end(struct uncached_free *freed, const char *call, CUresult result)
{
    int refused = result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED;
    if (__builtin_expect(freed->what == FREES_BLOCK && !refused, 1)) {
        if (process_state() == PROCESS_EXITING)
            atomic_fetch_add(&uncached.late_frees, 1);
        return result;
    }
    if (freed->what == FREES_UNKNOWN)
        return unknown_freed(freed, call, result);
    if ((freed->what == FREES_IN_GRAPH) == refused)
        return result;
    lock();
    if (refused) {
        put_back(freed);
    } else if (freed->what == FREES_IN_GRAPH) {
        count_made(&freed->block);
        count(&freed->block, 1);
        count(&freed->block, -1);
        stat_increase(&row_of(&freed->block)->freed, 1);
    }
    unlock();
    if (freed->what != FREES_REFERENCE)
        recorded(&freed->block, EVENT_uncached_alloc);
    if (freed->what == FREES_IN_GRAPH)
        recorded(&freed->block, EVENT_uncached_free);
    return result;
}

CUresult uncached_handle_made(CUresult result, uint64_t handle, uint64_t bytes,
                              const CUmemAllocationProp *properties)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    int on_device = !properties || properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    enum uncached_kind kind = !properties ? UNCACHED_imported
                              : on_device ? UNCACHED_vmm
                                          : UNCACHED_host;
    struct uncached_block block = {
        .key = handle,
        .bytes = bytes,
        .references = 1,
        .space = SPACE_handle,
        .device = properties && on_device ? (uint16_t)properties->location.id : UNCACHED_NO_DEVICE,
        .kind = (uint8_t)kind};
    block.site = site_of(&block);
    lock();
    struct allocation *old = properties ? NULL : find(SPACE_handle, handle);
    if (old) /* the driver knows the memory already */
        old->block.references++;
    unlock();
    if (!old)
        put_made(&block);
    return result;
}

CUresult uncached_handle_retained(CUresult result, uint64_t handle)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    lock();
    struct allocation *one = find(SPACE_handle, handle);
    if (one)
        one->block.references++;
    unlock();
    return result;
}

/* Each mapping has an entry, so that an unmapping of many finds the next one. */
CUresult uncached_handle_mapped(CUresult result, uint64_t address, uint64_t bytes, uint64_t handle)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    const struct uncached_block mapping = {
        .key = address, .bytes = bytes, .owner = handle, .space = SPACE_mapping};
    lock();
    struct allocation *one = find(SPACE_handle, handle);
    if (uncached.known.count < MOST_NODES && put_block(&mapping) && one)
        one->block.mappings++;
    unlock();
    return result;
}

/* One mapping of a handle is gone. Returns 1 if that was its last hold, and fills *ended. */
static int unmapped(uint64_t handle, struct uncached_block *ended)
{
    struct allocation *one = find(SPACE_handle, handle);
    if (!one || !one->block.mappings || --one->block.mappings || one->block.references)
        return 0;
    *ended = one->block;
    count(&one->block, -1);
    stat_increase(&row_of(&one->block)->freed, 1);
    drop(one);
    return 1;
}

CUresult uncached_handle_unmapped(CUresult result, uint64_t address, uint64_t bytes)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    for (uint64_t at = address, next; at - address < bytes && at; at = next) {
        struct uncached_block ended;
        lock();
        struct allocation *one = find(SPACE_mapping, at);
        uint64_t handle = one ? one->block.owner : 0;
        next = one ? at + one->block.bytes : 0;
        if (one)
            drop(one);
        int is_last = one && unmapped(handle, &ended);
        unlock();
        if (is_last)
            recorded(&ended, EVENT_uncached_free);
    }
    return result;
}

/* While a context ends, the owner of its allocations has this bit: the driver may give the handle
 * to another context before the call returns. */
#define ENDING UINT64_C(1)
#define FOUND_MOST 64 /* on the stack, which may be small */

struct search {
    uint64_t owner, becomes;
    struct found *found; /* NULL: gives what it finds another owner */
};
struct found {
    struct uncached_block block[FOUND_MOST];
    unsigned count;
};

static int see(const struct map_node *node, const void *context)
{
    const struct search *search = context;
    struct allocation *one = (struct allocation *)(uintptr_t)node;
    if (one->block.owner != search->owner || one->block.space == SPACE_mapping)
        return 0;
    if (search->found)
        search->found->block[search->found->count++] = one->block;
    else
        one->block.owner = search->becomes;
    return search->found && search->found->count == FOUND_MOST;
}

/* Drops some allocations of an owner. Returns 0 if there are no more. */
static int drop_owned(uint64_t owner)
{
    struct found found;
    const struct search search = {.owner = owner, .found = &found};
    found.count = 0;
    lock();
    map_any(&uncached.known, see, &search);
    for (unsigned i = 0; i < found.count; i++) {
        const struct uncached_block *block = &found.block[i];
        drop(find(block->space, block->key));
        if (block->space == SPACE_graph)
            continue;
        count(block, -1);
        stat_increase(&row_of(block)->ended, 1);
    }
    unlock();
    for (unsigned i = 0; i < found.count; i++)
        if (found.block[i].space != SPACE_graph)
            recorded(&found.block[i], EVENT_uncached_free);
    return found.count == FOUND_MOST;
}

static void change_owner(uint64_t owner, uint64_t becomes)
{
    const struct search search = {.owner = owner, .becomes = becomes};
    lock();
    map_any(&uncached.known, see, &search);
    unlock();
}

void uncached_context_ends(CUcontext context)
{
    uint64_t owner = (uint64_t)(uintptr_t)context;
    if (context && process_serving())
        change_owner(owner, owner | ENDING);
}

void uncached_context_ended(CUcontext context, int ended)
{
    uint64_t owner = (uint64_t)(uintptr_t)context;
    if (!context || !process_serving())
        return;
    if (!ended)
        change_owner(owner | ENDING, owner);
    atomic_fetch_add(&uncached.ends, 1);
    while (ended && drop_owned(owner | ENDING))
        ;
}

static int is_of_device(const struct map_node *node, const void *device)
{
    const struct uncached_block *block = &((const struct allocation *)node)->block;
    return block->owner && block->space != SPACE_mapping && block->device == *(const int *)device;
}

int uncached_has(CUdevice device)
{
    lock();
    int has = map_any(&uncached.known, is_of_device, &device) != NULL;
    unlock();
    return has;
}

struct walk {
    void (*take)(void *context, const struct snapshot_block *block);
    void *context;
};

static int show(const struct map_node *node, const void *context)
{
    const struct walk *walk = context;
    const struct uncached_block *block = &((const struct allocation *)node)->block;
    const struct snapshot_block row = {
        .address = block->key,
        .size_bytes = block->bytes,
        .requested_bytes = block->bytes,
        .device = block->device == UNCACHED_NO_DEVICE || block->kind == UNCACHED_host
                      ? SNAPSHOT_NO_DEVICE
                      : block->device,
        .state = SNAPSHOT_ALLOCATED,
        .kind = 1 + block->kind,
        .site = site_exact(block->site),
    };
    if (block->space != SPACE_mapping && block->space != SPACE_graph)
        walk->take(walk->context, &row);
    return 0;
}

void uncached_walk(void (*take)(void *context, const struct snapshot_block *block), void *context)
{
    const struct walk walk = {take, context};
    lock();
    map_any(&uncached.known, show, &walk);
    unlock();
}

uint64_t uncached_late_frees(void)
{
    return atomic_load(&uncached.late_frees);
}

static uint64_t format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default:
        return 4;
    }
}

uint64_t uncached_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    if (!array)
        return 0;
    uint64_t bytes = 0, width = array->Width, height = array->Height, depth = array->Depth;
    for (unsigned level = 0; level < (levels ? levels : 1) && level < 64; level++) {
        bytes += (width ? width : 1) * (height ? height : 1) * (depth ? depth : 1);
        width /= 2;
        height /= 2;
        depth /= 2;
    }
    return bytes * format_bytes(array->Format) * array->NumChannels;
}
