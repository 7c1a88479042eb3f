/*
 * Work that comes by the less common functions: each is ordered, or found not to be.
 */
#include "test_case.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* cuLaunchCooperative…MultiDevice */

static _Atomic int calls; /* counted by the simulator's thread */

static void CUDA_CB count_call(CUstream stream, CUresult status, void *data)
{
    if (stream == a && status == CUDA_SUCCESS && data == &calls)
        calls++;
}

static void callbacks_are_ordered(void)
{
    int flag = 0;
    begin();
    OK(cachalot_sim_launch_spin(a, &flag, NULL, 0));
    OK(cuStreamAddCallback(a, count_call, &calls, 0));
    OK(cuStreamAddCallback(a, count_call, &calls, 0));
    launch(a, 1000, &write_it);
    GIVES(0, calls);
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(a));
    GIVES(2, calls);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(a, NULL, NULL, 0));
}

static void callbacks_are_not_captured(void)
{
    CUgraph graph;
    begin();
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamAddCallback(a, count_call, &calls, 0));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
}

static void programmatic_chains_are_unordered(void)
{
    begin();
    launch(a, 1000, NULL);
    launch_programmatic(a, &write_it);
    launch_programmatic(a, &read_it);
}

static void programmatic_chains_overlap(void)
{
    begin();
    launch(a, 1000, &write_it);
    launch(a, 1000, NULL);
    launch_programmatic(a, &write_it); /* behind the first, beside the second */
    launch_programmatic(a, NULL);
    launch(a, 1000, &write_it);
    cachalot_sim_advance(2999);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    cachalot_sim_advance(1);
    OK(cuStreamQuery(a));
    launch_programmatic(a, &write_it);
    OK(cuStreamSynchronize(a));
    launch_programmatic(a, &write_it);
}

static void cooperative(CUstream first, CUstream second)
{
    struct cachalot_sim_kernel writes = {.ns = 1000, .ranges = &write_it, .range_count = 1};
    struct cachalot_sim_kernel reads = {.ns = 1000, .ranges = &read_it, .range_count = 1};
    void *one[] = {&writes}, *two[] = {&reads};
    CUDA_LAUNCH_PARAMS launches[] = {
        {.function = cachalot_sim_function(), .hStream = first, .kernelParams = one},
        {.function = cachalot_sim_function(), .hStream = second, .kernelParams = two}};
    OK(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0));
}

static void cooperative_launches_are_ordered(void)
{
    struct cachalot_sim_kernel kernel = {.ns = 1000, .ranges = &write_it, .range_count = 1};
    void *parameters[] = {&kernel};
    begin();
    cooperative(a, a);
    OK(cuLaunchCooperativeKernel(cachalot_sim_function(), 1, 1, 1, 1, 1, 1, 0, a, parameters));
    GIVES(3, cachalot_sim_unfinished());
}

static void cooperative_launches_are_checked(void)
{
    begin();
    cooperative(a, b);
}

static void written_values_are_checked(void)
{
    begin();
    launch(a, 1000, NULL);
    OK(cuStreamWriteValue32(a, memory, 1, 0));
    OK(cuStreamWaitValue32(b, memory, 1, CU_STREAM_WAIT_VALUE_GEQ)); /* a signal: no error */
    OK(cuMemsetD8Async(memory, 0, 1, b));
}

static void batched_values_are_checked(void)
{
    CUstreamBatchMemOpParams operations[2] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32}},
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64}}};
    begin();
    operations[0].writeValue.address = memory + 4;
    operations[1].writeValue.address = memory + 8;
    launch(a, 1000, NULL);
    OK(cuStreamBatchMemOp(a, 2, operations, 0));
    GIVES(3, cachalot_sim_unfinished());
    OK(cuMemsetD8Async(memory + 15, 0, 1, b));
}

static void freed_values_are_found(void)
{
    CUdeviceptr other;
    begin();
    OK(cuMemAllocAsync(&other, 64, a));
    OK(cuStreamWaitValue32(b, other, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemFreeAsync(other, a));
    OK(cuStreamWaitValue32(b, other, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static CUDA_MEMCPY3D_BATCH_OP box_of(CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY3D_BATCH_OP copy = {.extent = {64, 4, 2}};
    copy.dst.type = copy.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    copy.dst.op.ptr.ptr = to;
    copy.src.op.ptr.ptr = from;
    copy.dst.op.ptr.rowLength = 128;
    return copy;
}

static void batches_copy(void)
{
    unsigned char bytes[1024];
    size_t one = 100;
    begin();
    OK(cuMemsetD8(memory, 1, 8192));
    OK(cuMemsetD8(memory, 2, 512));
    CUDA_MEMCPY3D_BATCH_OP copies[] = {box_of(memory + 4096, memory),
                                       box_of(memory + 8192, memory)};
    OK(cuStreamSynchronize(NULL));
    OK(cuMemcpy3DBatchAsync(2, copies, 0, a));
    OK(cuStreamSynchronize(a));
    OK(cuMemcpyDtoH(bytes, memory + 4096, sizeof(bytes)));
    GIVES(2, bytes[0]);
    GIVES(2, bytes[128 + 63]);
    GIVES(1, bytes[64]);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(2, copies, 0, NULL));
    CUdeviceptr from = memory, to = memory + 4096;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first = 0;
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(&to, &from, &one, 1, &attributes, &first, 1, NULL));
    OK(cuMemcpyBatchAsync(&to, &from, &one, 1, &attributes, &first, 1, a));
}

static void batches_are_checked(void)
{
    begin();
    CUDA_MEMCPY3D_BATCH_OP copies[] = {box_of(memory + 16384, memory),
                                       box_of(memory + 4096, memory)};
    OK(cuMemcpy3DBatchAsync(2, copies, 0, a));
    launch(b, 1000, &write_it);
}

static CUdeviceptr managed(void)
{
    CUdeviceptr address;
    OK(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
    return address;
}

static void prefetches_read(void)
{
    CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    size_t bytes = 4096, first = 0;
    begin();
    CUdeviceptr address = managed();
    OK(cuMemPrefetchBatchAsync(&address, &bytes, 1, &place, &first, 1, 0, a));
    OK(cuMemPrefetchAsync(address, bytes, place, 0, b));
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuMemPrefetchBatchAsync(&memory, &bytes, 1, &place, &first, 1, 0, a));
    OK(cuMemDiscardBatchAsync(&address, &bytes, 1, 0, a));
}

static void discards_write(void)
{
    CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    size_t bytes = 4096, first = 0;
    begin();
    CUdeviceptr address = managed();
    OK(cuMemDiscardAndPrefetchBatchAsync(&address, &bytes, 1, &place, &first, 1, 0, a));
    OK(cuMemsetD8Async(address, 0, 1, a));
    OK(cuStreamSynchronize(a));
    OK(cuMemPrefetchAsync(address, bytes, place, 0, b));
    OK(cuMemPrefetchAsync(address, bytes, place, 0, a));
}

static void decompression_is_checked(void)
{
    begin();
    CUmemDecompressParams one = {.srcNumBytes = 100,
                                 .dstNumBytes = 4097,
                                 .src = (const void *)(uintptr_t)(memory + 65536),
                                 .dst = (void *)(uintptr_t)memory};
    OK(cuMemBatchDecompressAsync(&one, 1, 0, NULL, a));
    launch(b, 1000, &write_it);
}

static CUgraph captured(void *pinned)
{
    CUgraph graph;
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(a, 1000, &write_it);
    OK(cuMemcpyDtoHAsync(pinned, memory, 8, a));
    OK(cuStreamEndCapture(a, &graph));
    return graph;
}

static void nodes_are_told(void)
{
    CUgraphNode nodes[3];
    CUgraphNodeType type;
    CUDA_MEMCPY3D copy;
    size_t count = 3;
    void *pinned;
    begin();
    OK(cuMemHostAlloc(&pinned, 16, 0));
    OK(cuGraphGetNodes(captured(pinned), nodes, &count));
    GIVES(2, count);
    CHECK(nodes[2] == NULL);
    OK(cuGraphNodeGetType(nodes[0], &type));
    GIVES(CU_GRAPH_NODE_TYPE_KERNEL, type);
    OK(cuGraphNodeGetType(nodes[1], &type));
    GIVES(CU_GRAPH_NODE_TYPE_MEMCPY, type);
    OK(cuGraphMemcpyNodeGetParams(nodes[1], &copy));
    GIVES(CU_MEMORYTYPE_HOST, copy.dstMemoryType);
    GIVES(CU_MEMORYTYPE_DEVICE, copy.srcMemoryType);
    CHECK(copy.dstHost == pinned && copy.WidthInBytes == 8);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeGetParams(nodes[0], &copy));
}

static void graphs_are_updated(void)
{
    CUgraphExec exec;
    CUgraph empty;
    CUgraphExecUpdateResultInfo why;
    char *pinned;
    begin();
    OK(cuMemsetD8(memory, 7, 8));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemHostAlloc((void **)&pinned, 16, 0));
    memset(pinned, 0, 16);
    OK(cuGraphInstantiate(&exec, captured(pinned), 0));
    OK(cuGraphExecUpdate(exec, captured(pinned + 8), &why));
    OK(cuGraphLaunch(exec, a));
    OK(cuStreamSynchronize(a));
    GIVES(0, pinned[0]);
    GIVES(7, pinned[8]);
    OK(cuGraphCreate(&empty, 0));
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, empty, &why));
    GIVES(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, why.result);
    OK(cuGraphLaunch(exec, b));
}

static const struct test_case cases[] = {
    {"callbacks are ordered", callbacks_are_ordered, NULL, NULL},
    {"callbacks are not captured", callbacks_are_not_captured, MANUAL, NULL},
    {"programmatic chains are unordered", programmatic_chains_are_unordered, MANUAL,
     "unordered|cuLaunchKernelEx"},
    {"programmatic chains overlap", programmatic_chains_overlap, MANUAL, NULL},
    {"cooperative launches are ordered", cooperative_launches_are_ordered, MANUAL, NULL},
    {"cooperative launches are checked", cooperative_launches_are_checked, MANUAL,
     "unordered|cuLaunchCooperativeKernelMultiDevice"},
    {"written values are checked", written_values_are_checked, MANUAL,
     "unordered|cuMemsetD8Async|cuStreamWriteValue32"},
    {"batched values are checked", batched_values_are_checked, MANUAL,
     "unordered|cuMemsetD8Async|cuStreamBatchMemOp"},
    {"freed values are found", freed_values_are_found, MANUAL, "value cuStreamWaitValue32"},
    {"batches copy", batches_copy, MANUAL, NULL},
    {"batches are checked", batches_are_checked, MANUAL, "unordered|cuMemcpy3DBatchAsync"},
    {"prefetches read", prefetches_read, MANUAL, "unordered|cuMemDiscardBatchAsync"},
    {"discards write", discards_write, MANUAL, NULL},
    {"decompression is checked", decompression_is_checked, MANUAL,
     "unordered|cuMemBatchDecompressAsync"},
    {"nodes are told", nodes_are_told, MANUAL, NULL},
    {"graphs are updated", graphs_are_updated, MANUAL, NULL},
};

int main(void)
{
    return test_run(cases, sizeof(cases) / sizeof(cases[0]));
}
