/*
 * Stream-ordered allocation. A pool here keeps nothing: what is freed leaves the device when the
 * stream gets there.
 */
#include "call.h"
#include "capture.h"
#include "config.h"
#include "context.h"
#include "memory.h"

#include <stdlib.h>

struct sim_pool {
    int device;
    uint64_t threshold;
    unsigned reuse[3];
};

static struct sim_pool defaults[SIM_DEVICES_MAX];
static struct sim_pool *current[SIM_DEVICES_MAX];

static struct sim_pool *pool_default(int device)
{
    defaults[device].device = device;
    return &defaults[device];
}

static struct sim_pool *pool_current(int device)
{
    return current[device] ? current[device] : pool_default(device);
}

static CUresult pool_allocate(CUdeviceptr *out, size_t bytes, struct sim_pool *pool,
                              CUstream handle)
{
    CUresult result;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (!out || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pool)
        pool = pool_current(stream->context->device);
    if (stream->capture) {
        struct sim_work node;
        result = graph_alloc_work(&node, pool->device, bytes, out);
        return result ? result : stream_submit(stream, &node, NULL);
    }
    struct sim_memory *memory = memory_new(stream->context, pool->device, MEMORY_POOL, bytes);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->pool = pool;
    struct sim_work work = {
        .kind = WORK_ALLOC, .call = "cuMemAllocAsync", .ns = config()->latency_ns};
    work_add_range(&work, (struct sim_range){memory->start, bytes, 0, 1, 1});
    *out = memory->start;
    return stream_submit(stream, &work, NULL);
}

CUresult do_cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    return pool_allocate(out, bytes, NULL, stream);
}

CUresult do_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                    CUstream stream)
{
    return pool ? pool_allocate(out, bytes, (struct sim_pool *)pool, stream)
                : CUDA_ERROR_INVALID_VALUE;
}

/* From here on the memory is gone for everything submitted later, on any stream. */
CUresult do_cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    CUresult result;
    struct sim_stream *stream = stream_from(handle, &result);
    if (!stream)
        return result;
    if (stream->capture) {
        struct sim_work node;
        result = graph_free_work(&node, address);
        return result ? result : stream_submit(stream, &node, NULL);
    }
    struct sim_memory *memory = memory_find_base(address);
    if (!memory || memory->dying || memory->kind > MEMORY_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {
        .kind = WORK_FREE, .call = "cuMemFreeAsync", .ns = config()->latency_ns, .memory = memory};
    work_add_range(&work, (struct sim_range){memory->start, memory->bytes, 0, 1, 1});
    memory->dying = 1;
    result = stream_submit(stream, &work, NULL);
    if (result)
        memory->dying = 0;
    return result;
}

CUresult do_cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties)
{
    if (!out || !properties || !device_is_valid(properties->location.id))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->device = properties->location.id;
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult do_cuMemPoolDestroy(CUmemoryPool handle)
{
    struct sim_pool *pool = (struct sim_pool *)handle;
    if (!pool || pool == pool_default(pool->device))
        return CUDA_ERROR_INVALID_VALUE;
    if (current[pool->device] == pool)
        current[pool->device] = NULL;
    free(pool);
    return CUDA_SUCCESS;
}

CUresult do_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    (void)keep;
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    struct sim_pool *pool = (struct sim_pool *)handle;
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = *(const uint64_t *)value;
    else if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
            *(const unsigned *)value;
    return CUDA_SUCCESS;
}

CUresult do_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    const struct sim_pool *pool = (const struct sim_pool *)handle;
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        *(uint64_t *)value = pool->threshold;
    else if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        *(unsigned *)value =
            pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
    else
        *(uint64_t *)value = 0;
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = (CUmemoryPool)pool_default(device);
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = (CUmemoryPool)pool_current(device);
    return CUDA_SUCCESS;
}

CUresult do_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    if (!device_is_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    current[device] = (struct sim_pool *)pool;
    return CUDA_SUCCESS;
}
