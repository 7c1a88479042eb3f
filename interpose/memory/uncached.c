#include "interpose/memory/uncached.h"

#include <pthread.h>
#include <stddef.h>

#include "allocator/base/map.h"
#include "allocator/base/slab.h"
#include "interpose/memory/oom.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

struct allocation {
    struct map_node node;
    uint64_t bytes;
    enum uncached_kind kind;
};

static struct WIPED uncached {
    pthread_mutex_t lock;
    struct map known; /* struct allocation */
    struct slab nodes;
} uncached;
static const struct wiped wiped WIPED_ENTRY = {&uncached, sizeof uncached};

/* Most entries of graph nodes. A launch adds none, and the entry of a destroyed graph stays until
 * its address is used otherwise. */
#define MOST_IN_GRAPHS (1 << 20)

static void put(enum uncached_kind kind, uint64_t key, uint64_t bytes)
{
    struct map_node *old = map_find(&uncached.known, key);
    if (old && ((struct allocation *)old)->kind == UNCACHED_graph)
        slab_give(&uncached.nodes, map_remove(&uncached.known, key));
    if (kind == UNCACHED_graph && uncached.known.count >= MOST_IN_GRAPHS)
        return;
    uncached.nodes.item_bytes = sizeof(struct allocation);
    struct allocation *one = slab_take(&uncached.nodes);
    if (one) {
        *one = (struct allocation){.node.key = key, .bytes = bytes, .kind = kind};
        if (map_insert(&uncached.known, &one->node))
            slab_give(&uncached.nodes, one);
    }
}

static void book(enum uncached_kind kind, uint64_t bytes)
{
    struct page_uncached *row = &process.page->others[kind];
    row->allocated++;
    row->bytes += bytes;
    if (row->bytes > row->peak_bytes)
        row->peak_bytes = row->bytes;
}

CUresult uncached_made(CUresult result, enum uncached_kind kind, uint64_t key, uint64_t bytes)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    process_inside++;
    pthread_mutex_lock(&uncached.lock);
    put(kind, key, bytes);
    book(kind, bytes);
    pthread_mutex_unlock(&uncached.lock);
    process_inside--;
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
    process_inside++;
    pthread_mutex_lock(&uncached.lock);
    put(UNCACHED_graph, key, bytes);
    pthread_mutex_unlock(&uncached.lock);
    process_inside--;
    return result;
}

CUresult uncached_ended(CUresult result, uint64_t key, int *known)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    process_inside++;
    pthread_mutex_lock(&uncached.lock);
    struct map_node *node = map_find(&uncached.known, key);
    if (node) {
        struct allocation *one = (struct allocation *)node;
        struct page_uncached *row = &process.page->others[one->kind];
        if (one->kind == UNCACHED_graph)
            book(UNCACHED_graph, one->bytes);
        row->freed++;
        row->bytes -= one->bytes;
        if (one->kind != UNCACHED_graph) /* the next launch allocates there again */
            slab_give(&uncached.nodes, map_remove(&uncached.known, key));
    }
    pthread_mutex_unlock(&uncached.lock);
    process_inside--;
    if (known)
        *known = node != NULL;
    return result;
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
