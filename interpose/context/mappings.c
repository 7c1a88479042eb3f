#include "interpose/context/mappings.h"

#include <pthread.h>

#include "allocator/base/slab.h"
#include "interpose/context/context.h"
#include "interpose/context/group_limit.h"
#include "interpose/context/virtual_memory.h"
#include "interpose/process/gate.h"
#include "interpose/process/wiped.h"

static struct WIPED mappings {
    pthread_mutex_t lock;
    struct slab backings, places;
    struct backing *first;
    struct treap by_address; /* struct mapping */
    _Atomic uint64_t away[PEER_DEVICES];
} mappings;
static const struct wiped wiped WIPED_ENTRY = {&mappings, sizeof mappings};

static void *take(struct slab *slab, size_t bytes)
{
    pthread_mutex_lock(&mappings.lock);
    slab->item_bytes = bytes;
    void *item = slab_take(slab);
    pthread_mutex_unlock(&mappings.lock);
    return item;
}

static void give(struct slab *slab, void *item)
{
    pthread_mutex_lock(&mappings.lock);
    slab_give(slab, item);
    pthread_mutex_unlock(&mappings.lock);
}

int backing_fill(struct backing *backing)
{
    struct context *context = backing->context;
    if (!group_limit_claim(context, &context->in_chunks, backing->bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int code = driver_chunk_create(context, backing->bytes, &backing->handle);
    if (code)
        group_limit_give(context, &context->in_chunks, backing->bytes);
    else
        backing->is_empty = 0;
    return code;
}

int backing_empty(struct backing *backing)
{
    struct context *context = backing->context;
    int code = driver_chunk_release(context, backing->bytes, backing->handle);
    if (!code) {
        group_limit_give(context, &context->in_chunks, backing->bytes);
        backing->is_empty = 1;
    }
    return code;
}

int mapping_create(void *device, uint64_t bytes, uint64_t *handle)
{
    PASS_GATE;
    struct backing *backing = take(&mappings.backings, sizeof *backing);
    if (!backing)
        return CUDA_ERROR_OUT_OF_MEMORY;
    backing->context = device;
    backing->bytes = bytes;
    int code = backing_fill(backing);
    if (code) {
        give(&mappings.backings, backing);
        return code;
    }
    pthread_mutex_lock(&mappings.lock);
    backing->next = mappings.first;
    if (backing->next)
        backing->next->previous = backing;
    mappings.first = backing;
    pthread_mutex_unlock(&mappings.lock);
    *handle = (uint64_t)(uintptr_t)backing;
    return 0;
}

int mapping_release(void *device, uint64_t bytes, uint64_t handle)
{
    struct backing *backing = (struct backing *)(uintptr_t)handle;
    (void)device, (void)bytes;
    PASS_GATE;
    int code = backing_empty(backing);
    if (code)
        return code;
    pthread_mutex_lock(&mappings.lock);
    *(backing->previous ? &backing->previous->next : &mappings.first) = backing->next;
    if (backing->next)
        backing->next->previous = backing->previous;
    slab_give(&mappings.backings, backing);
    pthread_mutex_unlock(&mappings.lock);
    return 0;
}

uint64_t mapping_handle(uint64_t handle)
{
    return ((struct backing *)(uintptr_t)handle)->handle;
}

int mapping_map(void *device, uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct backing *backing = (struct backing *)(uintptr_t)handle;
    PASS_GATE;
    struct mapping *mapping = take(&mappings.places, sizeof *mapping);
    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int code = driver_chunk_map(device, address, bytes, backing->handle);
    if (code) {
        give(&mappings.places, mapping);
        return code;
    }
    *mapping = (struct mapping){.node.minor = address, .backing = backing, .is_closed = 1};
    pthread_mutex_lock(&mappings.lock);
    treap_insert(&mappings.by_address, &mapping->node);
    pthread_mutex_unlock(&mappings.lock);
    return 0;
}

int mapping_allow(void *device, uint64_t address, uint64_t bytes)
{
    PASS_GATE;
    int code = driver_chunk_allow(device, address, bytes);
    pthread_mutex_lock(&mappings.lock);
    for (struct mapping *m = mapping_at_least(address);
         !code && m && m->node.minor - address < bytes; m = mapping_at_least(m->node.minor + 1))
        m->is_closed = 0;
    pthread_mutex_unlock(&mappings.lock);
    return code;
}

int mapping_unmap(void *device, uint64_t address, uint64_t bytes)
{
    PASS_GATE;
    struct mapping *mapping;
    int code = driver_chunk_unmap(device, address, bytes);
    pthread_mutex_lock(&mappings.lock);
    while (!code && (mapping = mapping_at_least(address)) &&
           mapping->node.minor - address < bytes) {
        treap_remove(&mappings.by_address, &mapping->node);
        slab_give(&mappings.places, mapping);
    }
    pthread_mutex_unlock(&mappings.lock);
    return code;
}

struct backing *mapping_first_backing(void)
{
    return mappings.first;
}

struct mapping *mapping_at_least(uint64_t address)
{
    return (struct mapping *)treap_at_least(&mappings.by_address, 0, address);
}

struct mapping *mapping_around(uint64_t address)
{
    struct mapping *mapping = (struct mapping *)treap_at_most(&mappings.by_address, 0, address);
    return mapping && address - mapping->node.minor < mapping->backing->bytes ? mapping : NULL;
}

void backing_note_away(const struct backing *backing, int sign)
{
    unsigned device = (unsigned)backing->context->device;
    if (device < PEER_DEVICES)
        atomic_fetch_add(&mappings.away[device],
                         sign > 0 ? backing->bytes : (uint64_t)0 - backing->bytes);
}

uint64_t mapping_away(int device)
{
    return device >= 0 && device < PEER_DEVICES ? atomic_load(&mappings.away[device]) : 0;
}
