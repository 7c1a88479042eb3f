#include "interpose/others.h"

#include <stddef.h>

#include "interpose/process.h"

struct other {
    struct map_node node;
    uint64_t bytes;
    enum other_kind kind;
};

CUresult others_made(CUresult result, enum other_kind kind, uint64_t key, uint64_t bytes)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    process_inside++;
    pthread_mutex_lock(&process->others_lock);
    struct page_other *row = &process->page->others[kind];
    process->other_nodes.item_bytes = sizeof(struct other);
    struct other *other = slab_take(&process->other_nodes);
    if (other) {
        *other = (struct other){.node.key = key, .bytes = bytes, .kind = kind};
        if (map_insert(&process->others, &other->node))
            slab_give(&process->other_nodes, other);
    }
    row->allocated++;
    row->bytes += bytes;
    if (row->bytes > row->peak_bytes)
        row->peak_bytes = row->bytes;
    pthread_mutex_unlock(&process->others_lock);
    process_inside--;
    return result;
}

CUresult others_ended(CUresult result, uint64_t key, int *known)
{
    if (result != CUDA_SUCCESS || !process_serving())
        return result;
    process_inside++;
    pthread_mutex_lock(&process->others_lock);
    struct map_node *node = map_remove(&process->others, key);
    if (node) {
        struct other *other = (struct other *)node;
        struct page_other *row = &process->page->others[other->kind];
        row->freed++;
        row->bytes -= other->bytes;
        slab_give(&process->other_nodes, other);
    }
    pthread_mutex_unlock(&process->others_lock);
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

uint64_t others_array(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    uint64_t bytes = 0, width = array->Width, height = array->Height, depth = array->Depth;
    for (unsigned level = 0; level < (levels ? levels : 1) && level < 64; level++) {
        bytes += (width ? width : 1) * (height ? height : 1) * (depth ? depth : 1);
        width /= 2;
        height /= 2;
        depth /= 2;
    }
    return bytes * format_bytes(array->Format) * array->NumChannels;
}
