/*
 * Memory of graphs: an allocation node has its address from the day it is made, and each launch
 * puts memory there.
 */
#include "call.h"
#include "capture.h"
#include "config.h"
#include "context.h"
#include "memory.h"

#include <stdlib.h>

static size_t granules(size_t bytes)
{
    return (bytes + SIM_GRANULE - 1) & ~(SIM_GRANULE - 1);
}

CUresult graph_alloc_work(struct sim_work *work, int device, size_t bytes, CUdeviceptr *out)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    uintptr_t start = memory_reserve(device, granules(bytes), SIM_GRANULE);
    if (!start)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *work = (struct sim_work){
        .kind = WORK_ALLOC, .call = "an allocation node", .ns = config()->latency_ns};
    work_add_range(work, (struct sim_range){start, bytes, 0, 1, 1});
    *out = start;
    return CUDA_SUCCESS;
}

/* Whose memory it is, and how much, is known when it is launched. */
CUresult graph_free_work(struct sim_work *work, CUdeviceptr address)
{
    const struct sim_memory *memory = memory_find(address, 1);
    if (!address || (memory && memory->kind != MEMORY_POOL)) /* no allocation node's */
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct sim_work){.kind = WORK_FREE, .call = "a free node", .ns = config()->latency_ns};
    work_add_range(work, (struct sim_range){address, 1, 0, 1, 1});
    return CUDA_SUCCESS;
}

/* Is the node's memory still there? Not what an earlier launch has yet to free. */
static struct sim_memory *left_at(uintptr_t start)
{
    struct sim_memory *memory = memory_find_base(start);
    if (memory && memory->dying)
        context_wait(memory->context);
    return memory_find_base(start);
}

static CUresult allocate(struct sim_stream *stream, const struct sim_range *range, int auto_free)
{
    struct sim_memory *memory = left_at(range->start);
    if (memory && !auto_free)
        return CUDA_ERROR_INVALID_VALUE;
    if (memory) {
        context_wait(memory->context);
        if ((memory = memory_find_base(range->start)))
            memory_release(memory);
    }
    size_t whole = granules(range->bytes);
    if (!memory_charge(stream->context->device, whole))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory = memory_note(stream->context, MEMORY_POOL, range->start, range->bytes);
    if (!memory)
        abort();
    memory->charged = whole;
    return CUDA_SUCCESS;
}

CUresult graph_memory_launch(struct sim_stream *stream, const struct sim_graph *graph)
{
    CUresult result = CUDA_SUCCESS;
    size_t n = 0;
    for (; n < graph->count && !result; n++)
        if (graph->nodes[n]->kind == WORK_ALLOC)
            result = allocate(stream, work_ranges(graph->nodes[n]), graph->auto_free);
    if (!result)
        return CUDA_SUCCESS;
    while (--n > 0)
        if (graph->nodes[n - 1]->kind == WORK_ALLOC)
            memory_release(memory_find_base(work_ranges(graph->nodes[n - 1])->start));
    return result;
}

CUresult graph_memory_submit(struct sim_work *work)
{
    if (work->kind != WORK_FREE)
        return CUDA_SUCCESS;
    struct sim_memory *memory = memory_find_base(work_ranges(work)->start);
    if (!memory || memory->dying)
        return CUDA_ERROR_INVALID_VALUE;
    memory->dying = 1;
    work->memory = memory;
    work->own[0].bytes = memory->bytes;
    return CUDA_SUCCESS;
}

static CUresult add_node(CUgraphNode *node, CUgraph handle, const struct sim_work *work)
{
    struct sim_graph *graph = (struct sim_graph *)handle;
    graph_add(graph, work);
    *node = (CUgraphNode)graph->nodes[graph->count - 1];
    return CUDA_SUCCESS;
}

static CUresult add_alloc(CUgraphNode *node, CUgraph graph, int device, size_t bytes,
                          CUdeviceptr *out)
{
    struct sim_work work;
    if (!node || !graph || !device_is_valid(device))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = graph_alloc_work(&work, device, bytes, out);
    return result ? result : add_node(node, graph, &work);
}

CUresult do_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                   size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    (void)after, (void)count;
    return params ? add_alloc(node, graph, params->poolProps.location.id, params->bytesize,
                              &params->dptr)
                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                  size_t count, CUdeviceptr address)
{
    struct sim_work work;
    (void)after, (void)count;
    if (!node || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = graph_free_work(&work, address);
    return result ? result : add_node(node, graph, &work);
}

CUresult do_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                           CUgraphNodeParams *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return do_cuGraphAddMemFreeNode(node, graph, after, count, params->free.dptr);
    if (params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_NOT_SUPPORTED;
    return add_alloc(node, graph, params->alloc.poolProps.location.id, params->alloc.bytesize,
                     &params->alloc.dptr);
}

CUresult do_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                              const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    (void)edges;
    return do_cuGraphAddNode(node, graph, after, count, params);
}
