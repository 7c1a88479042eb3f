/* Memory that graphs allocate, freed in every way: by the graph, cuMemFree, cuMemFreeAsync, the
 * next launch; nodes made by hand and captured; several threads. Never more than it had at first.
 */
#define __CUDA_API_VERSION_INTERNAL /* cuGraphAddNode, in both versions */
#include "driver_case.h"

#include <pthread.h>

#define ROUNDS 20
#define THREADS 4

static CUcontext context;
static CUresult (*add_newest)(CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *,
                              size_t, CUgraphNodeParams *); /* cuGraphAddNode_v2 or _v3 */

/* The block is there: written, read back. */
static void use(CUstream stream, CUdeviceptr pointer, unsigned char value)
{
    unsigned char first = 0, last = 0;
    OK(cuMemsetD8Async(pointer, value, MIB, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(&first, pointer, 1));
    OK(cuMemcpyDtoH_v2(&last, pointer + MIB - 1, 1));
    CHECK(first == value && last == value);
}

/* Executable, without its graph. */
static CUgraphExec finish(CUgraph graph, unsigned long long flags)
{
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, graph, flags));
    OK(cuGraphDestroy(graph));
    return exec;
}

static const CUmemPoolProps place = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

/* By the function for it, or (how: 1, 2) by the two that add any node. */
static CUgraphExec by_hand(int how, CUdeviceptr *pointer, unsigned long long flags)
{
    CUgraph graph;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    if (how == 0) {
        CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.poolProps = place, .bytesize = MIB};
        OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
        *pointer = parameters.dptr;
        return finish(graph, flags);
    }
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                    .alloc = {.poolProps = place, .bytesize = MIB}};
    OK(how == 1 ? cuGraphAddNode(&node, graph, NULL, 0, &parameters)
                : add_newest(&node, graph, NULL, NULL, 0, &parameters));
    *pointer = parameters.alloc.dptr;
    return finish(graph, flags);
}

/* Allocates and, if it frees too, uses the block between. */
static CUgraphExec captured(CUstream stream, CUdeviceptr *pointer, int frees)
{
    CUgraph graph;
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemAllocAsync(pointer, MIB, stream));
    if (frees) {
        OK(cuMemsetD8Async(*pointer, 1, MIB, stream));
        OK(cuMemFreeAsync(*pointer, stream));
    }
    OK(cuStreamEndCapture(stream, &graph));
    return finish(graph, 0);
}

static void *worker(void *number)
{
    CUstream stream;
    CUdeviceptr pointer[5], dead;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraphExec frees = captured(stream, &dead, 1);
    CUgraphExec exec[5] = {by_hand(0, &pointer[0], 0), by_hand(1, &pointer[1], 0),
                           by_hand(2, &pointer[2], 0),
                           by_hand(0, &pointer[3], CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH),
                           captured(stream, &pointer[4], 0)};
    for (int round = 0; round < ROUNDS; round++) {
        OK(cuGraphLaunch(frees, stream));
        for (int i = 0; i < 5; i++) {
            OK(cuGraphLaunch(exec[i], stream));
            use(stream, pointer[i], (unsigned char)(round + i + *(int *)number));
            if (i != 3 && round % 2)
                OK(cuMemFree_v2(pointer[i]));
            else if (i != 3)
                OK(cuMemFreeAsync(pointer[i], stream));
        }
        OK(cuStreamSynchronize(stream));
    }
    OK(cuMemFree_v2(pointer[3])); /* left by the last launch */
    for (int i = 0; i < 5; i++)
        OK(cuGraphExecDestroy(exec[i]));
    OK(cuGraphExecDestroy(frees));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

/* What the cache holds is given back for a graph's memory too. */
static void under_pressure(void)
{
    CUdeviceptr cached, pointer;
    size_t available, total;
    CUgraph graph;
    CUgraphNode node;
    OK(cuMemGetInfo_v2(&available, &total));
    OK(cuMemAlloc_v2(&cached, total / 4 * 3));
    OK(cuMemFree_v2(cached));
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.poolProps = place, .bytesize = total / 2};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
    pointer = parameters.dptr;
    CUgraphExec exec = finish(graph, 0);
    SAY(cuGraphLaunch(exec, NULL));
    SAY(cuMemFree_v2(pointer));
    OK(cuGraphExecDestroy(exec));
}

int main(void)
{
    pthread_t thread[THREADS];
    int number[THREADS];
    size_t before, after, total;
    context = begin();
    OK(cuGetProcAddress("cuGraphAddNode", (void **)&add_newest, 13040, 0));
    OK(cuMemGetInfo_v2(&before, &total));
    for (int i = 0; i < THREADS; i++) {
        number[i] = i;
        OK(pthread_create(&thread[i], NULL, worker, &number[i]));
    }
    for (int i = 0; i < THREADS; i++)
        OK(pthread_join(thread[i], NULL));
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo_v2(&after, &total));
    SAY(before - after);
    under_pressure();
    return 0;
}
