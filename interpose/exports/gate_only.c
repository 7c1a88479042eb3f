/* Exported: functions that name memory without work on it. The driver may look it up, so it must be
 * mapped meanwhile. */
#include "interpose/process/gate.h"
#include "interpose/resolve/real_driver.h"

/* A function that only passes the gate. */
#define NAMES_MEMORY(name, parameters, arguments)                                                  \
    CUresult name parameters                                                                       \
    {                                                                                              \
        PASS_GATE;                                                                                 \
        return real()->name arguments;                                                             \
    }

#define ADD_NODE(name, kind)                                                                       \
    NAMES_MEMORY(name,                                                                             \
                 (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,       \
                  const kind *wanted, CUcontext context),                                          \
                 (node, graph, after, count, wanted, context))
ADD_NODE(cuGraphAddMemcpyNode, CUDA_MEMCPY3D)
ADD_NODE(cuGraphAddMemsetNode, CUDA_MEMSET_NODE_PARAMS)
NAMES_MEMORY(cuGraphAddBatchMemOpNode,
             (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
              const CUDA_BATCH_MEM_OP_NODE_PARAMS *wanted),
             (node, graph, after, count, wanted))
NAMES_MEMORY(cuGraphAddChildGraphNode,
             (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
              CUgraph child),
             (node, graph, after, count, child))
NAMES_MEMORY(cuGraphClone, (CUgraph * made, CUgraph graph), (made, graph))

NAMES_MEMORY(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D *wanted),
             (node, wanted))
NAMES_MEMORY(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *wanted),
             (node, wanted))
NAMES_MEMORY(cuGraphBatchMemOpNodeSetParams,
             (CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *wanted), (node, wanted))
NAMES_MEMORY(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *wanted), (node, wanted))
NAMES_MEMORY(cuGraphNodeSetParams_v2, (CUgraphNode node, CUgraphNodeParams *wanted), (node, wanted))
NAMES_MEMORY(cuGraphExecMemsetNodeSetParams,
             (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *wanted,
              CUcontext context),
             (exec, node, wanted, context))
NAMES_MEMORY(cuGraphExecBatchMemOpNodeSetParams,
             (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *wanted),
             (exec, node, wanted))

NAMES_MEMORY(cuTexRefSetAddress_v2,
             (size_t * offset, CUtexref texture, CUdeviceptr address, size_t bytes),
             (offset, texture, address, bytes))
NAMES_MEMORY(cuTexRefSetAddress2D_v2,
             (CUtexref texture, const CUDA_ARRAY_DESCRIPTOR *shape, CUdeviceptr address,
              size_t pitch),
             (texture, shape, address, pitch))
NAMES_MEMORY(cuTexRefSetAddress2D_v3,
             (CUtexref texture, const CUDA_ARRAY_DESCRIPTOR *shape, CUdeviceptr address,
              size_t pitch),
             (texture, shape, address, pitch))
