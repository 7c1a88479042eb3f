#include "call.h"
#include "capture.h"
#include "context.h"
#include "memory.h"

#include <stdlib.h>

struct sim_graph *graph_new(void)
{
    struct sim_graph *graph = calloc(1, sizeof(*graph));
    if (!graph)
        abort();
    return graph;
}

void graph_add(struct sim_graph *graph, const struct sim_work *work)
{
    graph->nodes = realloc(graph->nodes, (graph->count + 1) * sizeof(*graph->nodes));
    struct sim_work *node = malloc(sizeof(*node));
    if (!graph->nodes || !node)
        abort();
    work_copy(node, work);
    graph->nodes[graph->count++] = node;
}

static void graph_clear(struct sim_graph *graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        work_dispose(graph->nodes[i]);
        free(graph->nodes[i]);
    }
    free(graph->nodes);
    graph->nodes = NULL;
    graph->count = 0;
}

void graph_free(struct sim_graph *graph)
{
    graph_clear(graph);
    free(graph);
}

static void graph_copy(struct sim_graph *to, const struct sim_graph *from)
{
    for (size_t i = 0; i < from->count; i++)
        graph_add(to, from->nodes[i]);
}

CUresult do_cuGraphCreate(CUgraph *graph, unsigned flags)
{
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = (CUgraph)graph_new();
    return CUDA_SUCCESS;
}

CUresult do_cuGraphDestroy(CUgraph graph)
{
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    graph_free((struct sim_graph *)graph);
    return CUDA_SUCCESS;
}

CUresult do_cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    if (!handle || !count)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_graph *graph = (const struct sim_graph *)handle;
    for (size_t i = 0; nodes && i < *count; i++)
        nodes[i] = i < graph->count ? (CUgraphNode)graph->nodes[i] : NULL;
    if (!nodes || *count > graph->count)
        *count = graph->count;
    return CUDA_SUCCESS;
}

CUresult do_cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    static const CUgraphNodeType types[] = {
        [WORK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,        [WORK_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
        [WORK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,      [WORK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
        [WORK_MARK] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,  [WORK_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        [WORK_VALUE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [WORK_TOUCH] = CU_GRAPH_NODE_TYPE_KERNEL,
        [WORK_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,    [WORK_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE};
    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = types[((const struct sim_work *)node)->kind];
    return CUDA_SUCCESS;
}

static CUmemorytype type_at(uintptr_t address)
{
    const struct sim_memory *memory = memory_find(address, 1);
    return memory && memory->kind != MEMORY_HOST && memory->kind != MEMORY_REGISTERED
               ? CU_MEMORYTYPE_DEVICE
               : CU_MEMORYTYPE_HOST;
}

CUresult do_cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *copy)
{
    const struct sim_work *work = (const struct sim_work *)node;
    if (!work || !copy || work->kind != WORK_COPY)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_transfer *box = &work->transfer;
    *copy = (CUDA_MEMCPY3D){.srcMemoryType = type_at(box->from),
                            .srcHost = (const void *)box->from,
                            .srcDevice = box->from,
                            .srcPitch = box->from_pitch,
                            .dstMemoryType = type_at(box->to),
                            .dstHost = (void *)box->to,
                            .dstDevice = box->to,
                            .dstPitch = box->to_pitch,
                            .WidthInBytes = box->width,
                            .Height = box->height,
                            .Depth = box->depth};
    return CUDA_SUCCESS;
}

CUresult do_cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph,
                                        unsigned long long flags)
{
    if (!executable || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_graph *copy = graph_new();
    copy->auto_free = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    graph_copy(copy, (const struct sim_graph *)graph);
    *executable = (CUgraphExec)copy;
    return CUDA_SUCCESS;
}

CUresult do_cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph,
                                         CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return do_cuGraphInstantiateWithFlags(executable, graph, params->flags);
}

CUresult do_cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *failed,
                                  char *log, size_t bytes)
{
    if (failed)
        *failed = NULL;
    if (log && bytes)
        *log = 0;
    return do_cuGraphInstantiateWithFlags(executable, graph, 0);
}

/* Only between graphs of the same kinds of nodes. */
static CUgraphExecUpdateResult update(CUgraphExec executable, CUgraph graph)
{
    struct sim_graph *to = (struct sim_graph *)executable;
    const struct sim_graph *from = (const struct sim_graph *)graph;
    if (to->count != from->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < to->count; i++)
        if (to->nodes[i]->kind != from->nodes[i]->kind)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    graph_clear(to);
    graph_copy(to, from);
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult do_cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphNode *failed,
                              CUgraphExecUpdateResult *why)
{
    if (!executable || !graph || !why)
        return CUDA_ERROR_INVALID_VALUE;
    if (failed)
        *failed = NULL;
    *why = update(executable, graph);
    return *why == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult do_cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph,
                                 CUgraphExecUpdateResultInfo *info)
{
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){0};
    return do_cuGraphExecUpdate(executable, graph, NULL, &info->result);
}

CUresult do_cuGraphExecDestroy(CUgraphExec executable)
{
    if (!executable)
        return CUDA_ERROR_INVALID_VALUE;
    graph_free((struct sim_graph *)executable);
    return CUDA_SUCCESS;
}

CUresult do_cuGraphUpload(CUgraphExec executable, CUstream stream)
{
    CUresult why = CUDA_SUCCESS;
    if (!executable)
        return CUDA_ERROR_INVALID_VALUE;
    stream_from(stream, &why);
    return why;
}

/* The nodes run one after the other on the launch stream: no less ordered than the graph is. */
CUresult do_cuGraphLaunch(CUgraphExec executable, CUstream handle)
{
    CUresult why = CUDA_SUCCESS;
    struct sim_stream *stream = stream_from(handle, &why);
    if (!stream)
        return why;
    if (!executable)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_graph *graph = (const struct sim_graph *)executable;
    why = graph_memory_launch(stream, graph);
    for (size_t i = 0; i < graph->count && !why; i++) {
        struct sim_work work;
        work_copy(&work, graph->nodes[i]);
        why = graph_memory_submit(&work);
        if (!why)
            why = stream_submit(stream, &work, NULL);
    }
    return why;
}
