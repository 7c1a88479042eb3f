/* What the device has beyond the size that was set is hidden: it is neither free nor part of the
 * total, and an allocation that would reach into it is out of memory. The driver's own figures
 * decide, so that contexts, modules and other processes count as on a device of that size.
 * Threads that allocate at the same time may pass the size by their last requests. */
#include "interpose/memory/smaller_device.h"

#include "interpose/context/capture.h"
#include "interpose/context/context.h"
#include "interpose/memory/uncached.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

static struct real_driver below; /* what the table held */

static size_t hidden_of(size_t total)
{
    uint64_t size = process.config.options.device_size;
    return size && size < total ? total - size : 0;
}

static size_t less(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

static CUresult total_memory(size_t *bytes, CUdevice device)
{
    CUresult result = below.cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS)
        *bytes -= hidden_of(*bytes);
    return result;
}

static CUresult memory_info(size_t *available, size_t *total)
{
    size_t has = 0, all = 0;
    CUresult result = below.cuMemGetInfo_v2(available ? &has : NULL, total ? &all : NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!total)
        result = below.cuMemGetInfo_v2(&has, &all);
    size_t hidden = hidden_of(all);
    if (available)
        *available = less(has, hidden);
    if (total)
        *total = all - hidden;
    return result;
}

/* Notes in the page the least that was left. */
static void note_left(uint64_t left)
{
    if (!process.page) /* a forked child, before it uses CUDA */
        return;
    stat_value *least = &process.page->fit_least_bytes; /* plus one; 0: nothing was allocated */
    uint64_t before = atomic_load(least);
    while ((!before || left + 1 < before) &&
           !atomic_compare_exchange_weak(least, &before, left + 1)) {
    }
}

/* Would the current context's device have `bytes` bytes? 1 also where nobody can say. */
static int has_room(uint64_t bytes)
{
    size_t available = 0, total = 0;
    if (below.cuMemGetInfo_v2(&available, &total) != CUDA_SUCCESS)
        return 1;
    size_t room = less(available, hidden_of(total));
    if (bytes > room) {
        process_count(COVERAGE_fit_refused);
        return 0;
    }
    note_left(room - bytes);
    return 1;
}

#define LIMITED(name, bytes, parameters, arguments)                                                \
    static CUresult limited_##name parameters                                                      \
    {                                                                                              \
        return has_room(bytes) ? below.name arguments : CUDA_ERROR_OUT_OF_MEMORY;                  \
    }

LIMITED(cuMemAlloc_v2, bytes, (CUdeviceptr * pointer, size_t bytes), (pointer, bytes))
LIMITED(cuMemAllocPitch_v2, width *height,
        (CUdeviceptr * pointer, size_t *pitch, size_t width, size_t height, unsigned int element),
        (pointer, pitch, width, height, element))

/* Elements of compressed formats may have fewer bytes than those that are counted. */
static uint64_t array_3d(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels)
{
    uint64_t bytes = uncached_array_bytes(shape, levels);
    return shape && shape->Format <= CU_AD_FORMAT_FLOAT ? bytes
                                                        : uncached_least(UNCACHED_array, bytes);
}

static uint64_t array_2d(const CUDA_ARRAY_DESCRIPTOR *shape)
{
    if (!shape)
        return 0;
    const CUDA_ARRAY3D_DESCRIPTOR full = uncached_array_of(shape);
    return array_3d(&full, 1);
}

LIMITED(cuArrayCreate_v2, array_2d(shape), (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *shape),
        (array, shape))
LIMITED(cuArray3DCreate_v2, array_3d(shape, 1),
        (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape), (array, shape))
LIMITED(cuMipmappedArrayCreate, array_3d(shape, levels),
        (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels),
        (array, shape, levels))

/* Memory of a device whose context is not current is let through: nobody says what it has free. */
static uint64_t created(const CUmemAllocationProp *properties, size_t bytes)
{
    CUdevice device = -1;
    return properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                   real()->cuCtxGetDevice(&device) == CUDA_SUCCESS &&
                   device == properties->location.id
               ? bytes
               : 0;
}

LIMITED(cuMemCreate, created(properties, bytes),
        (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *properties,
         unsigned long long flags),
        (handle, bytes, properties, flags))

/* The bytes by which a pool grows for a request, 0 in a capture, where nothing is allocated; if its free memory serves it as well as it can. */
static uint64_t growth_of(CUmemoryPool pool, size_t bytes)
{
    cuuint64_t reserved = 0, used = 0;
    if (capture_active())
        return 0;
    if (below.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
        below.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
        return bytes;
    return less(used + bytes, reserved);
}

static uint64_t growth_of_current(size_t bytes)
{
    CUdevice device = 0;
    CUmemoryPool pool = NULL;
    return real()->cuCtxGetDevice(&device) || below.cuDeviceGetMemPool(&pool, device)
               ? bytes
               : growth_of(pool, bytes);
}

#define ASYNC (CUdeviceptr * pointer, size_t bytes, CUstream stream)
#define FROM_POOL (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
LIMITED(cuMemAllocAsync, growth_of_current(bytes), ASYNC, (pointer, bytes, stream))
LIMITED(cuMemAllocAsync_ptsz, growth_of_current(bytes), ASYNC, (pointer, bytes, stream))
LIMITED(cuMemAllocFromPoolAsync, growth_of(pool, bytes), FROM_POOL, (pointer, bytes, pool, stream))
LIMITED(cuMemAllocFromPoolAsync_ptsz, growth_of(pool, bytes), FROM_POOL,
        (pointer, bytes, pool, stream))

void smaller_device_begin(void)
{
    if (!process.config.options.device_size || real_table.cuMemGetInfo_v2 == memory_info)
        return; /* a child has its parent's table */
    below = *real();
#define REPLACE(name, with) __atomic_store_n(&real_table.name, with, __ATOMIC_RELEASE)
#define LIMIT(name) REPLACE(name, limited_##name)
    REPLACE(cuDeviceTotalMem_v2, total_memory);
    REPLACE(cuMemGetInfo_v2, memory_info);
    LIMIT(cuMemAlloc_v2);
    LIMIT(cuMemAllocPitch_v2);
    LIMIT(cuArrayCreate_v2);
    LIMIT(cuArray3DCreate_v2);
    LIMIT(cuMipmappedArrayCreate);
    LIMIT(cuMemCreate);
    LIMIT(cuMemAllocAsync);
    LIMIT(cuMemAllocAsync_ptsz);
    LIMIT(cuMemAllocFromPoolAsync);
    LIMIT(cuMemAllocFromPoolAsync_ptsz);
}
