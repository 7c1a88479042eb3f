#include "call.h"
#include "capture.h"
#include "context.h"

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
    if (!graph->nodes)
        abort();
    work_copy(&graph->nodes[graph->count++], work);
}

void graph_free(struct sim_graph *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        work_dispose(&graph->nodes[i]);
    free(graph->nodes);
    free(graph);
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

/* Nodes have no handles: only their number is told. */
CUresult do_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    if (!graph || !count)
        return CUDA_ERROR_INVALID_VALUE;
    if (nodes)
        return CUDA_ERROR_NOT_SUPPORTED;
    *count = ((struct sim_graph *)graph)->count;
    return CUDA_SUCCESS;
}

CUresult do_cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph,
                                        unsigned long long flags)
{
    (void)flags;
    if (!executable || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_graph *from = (struct sim_graph *)graph, *copy = graph_new();
    for (size_t i = 0; i < from->count; i++)
        graph_add(copy, &from->nodes[i]);
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
    for (size_t i = 0; i < graph->count && !why; i++) {
        struct sim_work work;
        work_copy(&work, &graph->nodes[i]);
        why = stream_submit(stream, &work, NULL);
    }
    return why;
}
