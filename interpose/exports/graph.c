/* Exported: graph nodes that allocate, and the life of executable graphs. */
#include "interpose/stream/graph_contents.h"
#include "interpose/memory/refuse.h"
#include "interpose/memory/uncached.h"
#include "interpose/process/gate.h"
#include "interpose/exports/submit_wrapper.h"

/* A function that adds a node. `allocates`: the node will put `bytes` at `address`; all three are
 * expressions of its parameters. The address is evaluated after the call has succeeded. */
#define ADD_NODE(name, allocates, address, bytes, parameters, arguments)                           \
    CUresult name parameters                                                                       \
    {                                                                                              \
        PASS_GATE;                                                                                 \
        CUresult result;                                                                           \
        if (wanted && (allocates) && refuses(UNCACHED_graph, bytes))                               \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        RETRIED(result, real()->name arguments);                                                   \
        return result || !(allocates) ? result : uncached_in_graph(result, address, bytes);        \
    }
#define ADD_ANY_NODE(name, parameters, arguments)                                                  \
    ADD_NODE(name, wanted->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC, wanted->alloc.dptr,               \
             wanted->alloc.bytesize, parameters, arguments)
ADD_NODE(cuGraphAddMemAllocNode, 1, wanted->dptr, wanted->bytesize,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          CUDA_MEM_ALLOC_NODE_PARAMS *wanted),
         (node, graph, after, count, wanted))
ADD_ANY_NODE(cuGraphAddNode,
             (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
              CUgraphNodeParams *wanted),
             (node, graph, after, count, wanted))
ADD_ANY_NODE(cuGraphAddNode_v2,
             (CUgraphNode * node, CUgraph graph, const CUgraphNode *after,
              const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *wanted),
             (node, graph, after, edges, count, wanted))
ADD_ANY_NODE(cuGraphAddNode_v3,
             (CUgraphNode * node, CUgraph graph, const CUgraphNode *after,
              const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *wanted),
             (node, graph, after, edges, count, wanted))

/* A function that makes `exec` from `graph`. */
#define INSTANTIATE(name, parameters, arguments)                                                   \
    CUresult name parameters                                                                       \
    {                                                                                              \
        PASS_GATE;                                                                                 \
        CUresult result;                                                                           \
        RETRIED(result, real()->name arguments);                                                   \
        if (result == CUDA_SUCCESS)                                                                \
            graphs_made(*exec, graph);                                                             \
        return result;                                                                             \
    }
#define WITH_LOG (CUgraphExec * exec, CUgraph graph, CUgraphNode * failed, char *log, size_t bytes)
INSTANTIATE(cuGraphInstantiate, WITH_LOG, (exec, graph, failed, log, bytes))
INSTANTIATE(cuGraphInstantiate_v2, WITH_LOG, (exec, graph, failed, log, bytes))
INSTANTIATE(cuGraphInstantiateWithFlags,
            (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))

/* It may also upload the graph, on a stream that the parameters name. */
#define INSTANTIATE_WITH_PARAMS(name, per_thread)                                                  \
    CUresult name(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)     \
    {                                                                                              \
        PASS_GATE;                                                                                 \
        CUresult result;                                                                           \
        int uploads = parameters && (parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);      \
        CUstream stream = uploads ? parameters->hUploadStream : NULL;                              \
        if (uploads)                                                                               \
            submit_begin(SUBMISSION_others, stream, per_thread);                                   \
        RETRIED(result, real()->name(exec, graph, parameters));                                    \
        if (uploads)                                                                               \
            submit_end(result, stream, per_thread, 0);                                             \
        if (result == CUDA_SUCCESS)                                                                \
            graphs_made(*exec, graph);                                                             \
        return result;                                                                             \
    }
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams, 0)
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams_ptsz, 1)

/* A function that updates `exec` from `graph`, in part if it fails. */
#define UPDATE(name, parameters, arguments)                                                        \
    CUresult name parameters                                                                       \
    {                                                                                              \
        PASS_GATE;                                                                                 \
        CUresult result;                                                                           \
        RETRIED(result, real()->name arguments);                                                   \
        if (result == CUDA_SUCCESS)                                                                \
            graphs_made(exec, graph);                                                              \
        else                                                                                       \
            graphs_forget(exec);                                                                   \
        return result;                                                                             \
    }
UPDATE(cuGraphExecUpdate,
       (CUgraphExec exec, CUgraph graph, CUgraphNode *failed, CUgraphExecUpdateResult *why),
       (exec, graph, failed, why))
UPDATE(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *why),
       (exec, graph, why))

/* A function after which the contents of `exec` are unknown. */
#define FORGET(name, parameters, arguments)                                                        \
    CUresult name parameters                                                                       \
    {                                                                                              \
        PASS_GATE;                                                                                 \
        graphs_forget(exec);                                                                       \
        return real()->name arguments;                                                             \
    }
FORGET(cuGraphExecMemcpyNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
       (exec, node, copy, context))
FORGET(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child),
       (exec, node, child))
FORGET(cuGraphExecNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *parameters),
       (exec, node, parameters))
FORGET(cuGraphExecDestroy, (CUgraphExec exec), (exec))
