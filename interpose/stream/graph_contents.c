#include "interpose/stream/graph_contents.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>

#include "allocator/base/map.h"
#include "allocator/base/slab.h"
#include "interpose/stream/copy_destination.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

/* An executable graph without effects that the host can see. All other graphs are unknown. */
struct exec {
    struct map_node node;
};

static struct WIPED graphs {
    _Atomic uint64_t forgotten; /* number of graphs forgotten */
    pthread_mutex_t lock;
    struct map known; /* struct exec */
    struct slab nodes;
} graphs;
static const struct wiped wiped WIPED_ENTRY = {&graphs, sizeof graphs};

#define DEEPEST 16 /* levels of nested graphs; deeper ones count as visible to the host */

static int graph_is_host(CUgraph graph, int depth);

/* A destination that the parameters call device memory may be the host's, by its unified
 * address. */
static int copy_is_host(CUgraphNode node)
{
    CUDA_MEMCPY3D copy;
    if (real()->cuGraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS)
        return 1;
    return copy.dstMemoryType != CU_MEMORYTYPE_ARRAY &&
           (copy.dstMemoryType == CU_MEMORYTYPE_HOST || destination_is_host(copy.dstDevice));
}

static int node_is_host(CUgraphNode node, int depth)
{
    CUgraphNodeType type;
    CUgraph child;
    if (real()->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return 1;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return 0;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_is_host(node);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return real()->cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS ||
               graph_is_host(child, depth + 1);
    default: /* host nodes, conditional nodes, and kinds of later drivers */
        return 1;
    }
}

static int graph_is_host(CUgraph graph, int depth)
{
    size_t count = 0, looked = 0;
    if (depth > DEEPEST || real()->cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS)
        return 1;
    if (!count)
        return 0;
    size_t bytes = count * sizeof(CUgraphNode);
    CUgraphNode *nodes =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return 1;
    if (real()->cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        while (looked < count && looked < bytes / sizeof *nodes &&
               !node_is_host(nodes[looked], depth))
            looked++;
    int host = looked < bytes / sizeof *nodes;
    munmap(nodes, bytes);
    return host;
}

void graphs_forget(CUgraphExec handle)
{
    if (!process_serving())
        return;
    process_inside++;
    pthread_mutex_lock(&graphs.lock);
    struct map_node *node = map_remove(&graphs.known, (uint64_t)(uintptr_t)handle);
    if (node) {
        slab_give(&graphs.nodes, node);
        atomic_fetch_add(&graphs.forgotten, 1);
    }
    pthread_mutex_unlock(&graphs.lock);
    process_inside--;
}

void graphs_made(CUgraphExec handle, CUgraph graph)
{
    if (!process_serving())
        return;
    if (graph_is_host(graph, 0)) {
        graphs_forget(handle); /* the update may have added such a node */
        return;
    }
    process_inside++;
    pthread_mutex_lock(&graphs.lock);
    graphs.nodes.item_bytes = sizeof(struct exec);
    struct exec *exec = slab_take(&graphs.nodes);
    if (exec) {
        exec->node.key = (uint64_t)(uintptr_t)handle;
        if (map_find(&graphs.known, exec->node.key) || map_insert(&graphs.known, &exec->node))
            slab_give(&graphs.nodes, exec);
    }
    pthread_mutex_unlock(&graphs.lock);
    process_inside--;
}

/* This thread's answers, valid until any graph is forgotten: so a launch takes no lock. */
#define FOUND_BITS 4
static _Thread_local struct {
    CUgraphExec handle;
    uint64_t forgotten;
} found[1 << FOUND_BITS];

DIRECT int graphs_to_host(CUgraphExec handle)
{
    if (!process_serving())
        return 1;
    uint64_t forgotten = atomic_load(&graphs.forgotten);
    unsigned place = (uint32_t)(uintptr_t)handle * UINT32_C(0x9e3779b1) >> (32 - FOUND_BITS);
    if (found[place].handle == handle && found[place].forgotten == forgotten)
        return 0;
    process_inside++;
    pthread_mutex_lock(&graphs.lock);
    int known = map_find(&graphs.known, (uint64_t)(uintptr_t)handle) != NULL;
    pthread_mutex_unlock(&graphs.lock);
    process_inside--;
    if (known) {
        found[place].handle = handle;
        found[place].forgotten = forgotten;
    }
    return !known;
}
