#include "submission_world.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* cuLaunchCooperative…MultiDevice */

long kernels, copies, sets, graphs, host_functions, memory_operations, pool_operations, others;
int host_calls;
CUcontext context;
CUdeviceptr to, from, managed;
CUdeviceptr pooled;
CUarray array[2];
CUgraph graph;
CUgraphExec exec;
unsigned char *pinned;
static CUmemoryPool pool;
static unsigned char pattern[BYTES];
static size_t bytes = BYTES, first;

static void CUDA_CB host_function(void *calls)
{
    ++*(int *)calls;
}

static void CUDA_CB callback(CUstream stream, CUresult status, void *calls)
{
    (void)stream;
    *(int *)calls += status == CUDA_SUCCESS;
}

static CUarray make_array(void)
{
    CUarray made;
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = BYTES, .Height = 1, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    OK(cuArrayCreate_v2(&made, &shape));
    return made;
}

/* What all those before left is gone; what they read is there. Not counted: read by what we count.
 */
void prepare(void)
{
    context = begin();
    to = make(BYTES);
    from = make(BYTES);
    array[0] = make_array();
    array[1] = make_array();
    OK(cuMemHostAlloc((void **)&pinned, BYTES, 0));
    OK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    for (size_t i = 0; i < BYTES; i++)
        pattern[i] = (unsigned char)(i + 1);
    OK(cuMemcpyHtoD_v2(from, pattern, BYTES));
    OK(cuMemcpyHtoA_v2(array[0], 0, pattern, BYTES));
    copies += 2;
}

/* The sum of all that may have been written, which is then cleared. The device's memory can be
 * read: it is a simulated one. */
unsigned long settle(void)
{
    unsigned char out[BYTES], *device = (unsigned char *)(uintptr_t)to;
    unsigned long sum = 0;
    OK(cuCtxSynchronize());
    OK(cuMemcpyAtoH_v2(out, array[1], 0, BYTES));
    copies++;
    for (size_t i = 0; i < BYTES; i++)
        sum = sum * 31 + device[i] + 3 * pinned[i] + 5 * out[i];
    memset(device, 0, BYTES);
    memset(pinned, 0, BYTES);
    memset(out, 0, BYTES);
    OK(cuMemcpyHtoA_v2(array[1], 0, out, BYTES));
    copies++;
    return sum;
}

void capture_graph(CUstream stream)
{
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyDtoDAsync_v2(to, from, BYTES, stream));
    OK(cuStreamEndCapture(stream, &graph));
    copies++; /* it is none on a capturing stream, but who tells */
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

void submit_all(const struct functions *f, CUstream own)
{
    CUstream stream = own;
    CUfunction function = cachalot_sim_function();
    struct cachalot_sim_kernel kernel = {.ns = 100};
    void *parameters[] = {&kernel};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {.hStream = own, .attrs = &attribute, .numAttrs = 1};
    CUDA_LAUNCH_PARAMS launches[] = {
        {.function = function, .hStream = own, .kernelParams = parameters}};
    CUDA_MEMCPY2D copy_2d = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = from,
                             .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                             .dstDevice = (uintptr_t)pinned,
                             .WidthInBytes = 32,
                             .Height = 2};
    CUDA_MEMCPY3D copy_3d = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = from,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = pinned,
                             .WidthInBytes = 16,
                             .Height = 2,
                             .Depth = 2};
    CUDA_MEMCPY3D_PEER copy_peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = from,
                                    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = to,
                                    .WidthInBytes = 16,
                                    .Height = 2,
                                    .Depth = 2};
    CUDA_MEMCPY3D_BATCH_OP copy_batch = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = from},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = to},
        .extent = {32, 2, 1}};
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUstreamBatchMemOpParams operation = {
        .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = to, .value = 11}};
    CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemDecompressParams packed = {.srcNumBytes = BYTES,
                                    .dstNumBytes = BYTES,
                                    .src = (void *)(uintptr_t)from,
                                    .dst = (void *)(uintptr_t)to};

#define ONE(name, kind, arguments)                                                                 \
    OK(f->name arguments);                                                                         \
    kind++;                                                                                        \
    submitted(#name);
#define BOTH(name, suffix, kind, arguments)                                                        \
    stream = own;                                                                                  \
    ONE(name, kind, arguments)                                                                     \
    stream = NULL;                                                                                 \
    ONE(name##suffix, kind, arguments)
    SUBMISSION_LIST(BOTH, ONE)
#undef ONE
#undef BOTH
}

void free_some(const struct functions *f, CUstream stream)
{
    CUdeviceptr mine = make(BYTES);
    for (int twin = 0; twin < 2; twin++) {
        OK(cuMemAllocAsync(&pooled, BYTES, stream));
        OK((twin ? f->cuMemFreeAsync_ptsz : f->cuMemFreeAsync)(pooled, stream));
        pool_operations += 2;
    }
    OK(f->cuMemFreeAsync(mine, stream)); /* nothing is put into the stream for it */
}

void instantiate(CUstream stream)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                                                .hUploadStream = stream};
    CUgraphExecUpdateResultInfo info;
    CUgraphExecUpdateResult result;
    OK(cuGraphInstantiateWithParams(&exec, graph, &parameters));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithParams_ptsz(&exec, graph, &parameters));
    others += 2;
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&exec, graph, NULL, NULL, 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0));
    OK(cuGraphExecUpdate(exec, graph, NULL, &result));
    OK(cuGraphExecUpdate_v2(exec, graph, &info));
    OK(cuGraphLaunch(exec, stream));
    graphs++;
    submitted("updated");
}

/* By nodes made in each way there is, and freed by the program. */
void allocate_in_graph(CUstream stream)
{
    static const CUmemPoolProps place = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUDA_MEM_ALLOC_NODE_PARAMS block = {.poolProps = place, .bytesize = BYTES};
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                             .alloc = {.poolProps = place, .bytesize = BYTES}};
    CUgraphNode node;
    CUgraph made;
    CUgraphExec launched;
    CUdeviceptr pointer[4];
    OK(cuGraphCreate(&made, 0));
    OK(cuGraphAddMemAllocNode(&node, made, NULL, 0, &block));
    pointer[0] = block.dptr;
    OK(cuGraphAddNode(&node, made, NULL, 0, &any));
    pointer[1] = any.alloc.dptr;
    OK(cuGraphAddNode_v2(&node, made, NULL, NULL, 0, &any));
    pointer[2] = any.alloc.dptr;
    OK(cuStreamBeginCaptureToGraph(stream, made, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&pointer[3], BYTES, stream));
    OK(cuStreamEndCapture(stream, &made));
    OK(cuGraphInstantiateWithFlags(&launched, made, 0));
    OK(cuGraphDestroy(made));
    OK(cuGraphLaunch(launched, stream));
    for (int i = 0; i < 4; i++)
        OK(cuMemFree_v2(pointer[i]));
    OK(cuGraphExecDestroy(launched));
}
