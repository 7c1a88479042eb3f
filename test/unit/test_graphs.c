/* What is remembered of executable graphs, on a driver made of small structs. */
#include "world.h"

#include "interpose/stream/copy_destination.h"
#include "interpose/stream/graph_contents.c"

#define DEVICE UINT64_C(0x1000) /* below: the host's; from MANAGED on: managed */
#define MANAGED UINT64_C(0x2000)

struct node {
    CUgraphNodeType type;
    CUmemorytype to;
    CUdeviceptr address;
    struct graph *child;
};

struct graph {
    struct node *node;
    size_t count;
};

struct process process;
_Thread_local int process_inside;
struct real_driver real_table;
_Atomic int real_loaded = 1;
static int failing;

int real_load(void)
{
    return 1;
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    struct graph *graph = (struct graph *)handle;
    for (size_t i = 0; nodes && i < graph->count; i++)
        nodes[i] = (CUgraphNode)&graph->node[i];
    *count = graph->count;
    return failing ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode node, CUgraphNodeType *type)
{
    *type = ((struct node *)node)->type;
    return CUDA_SUCCESS;
}

static CUresult get_copy(CUgraphNode handle, CUDA_MEMCPY3D *copy)
{
    const struct node *node = (const struct node *)handle;
    *copy = (CUDA_MEMCPY3D){.dstMemoryType = node->to, .dstDevice = node->address};
    return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode node, CUgraph *child)
{
    *child = (CUgraph)((struct node *)node)->child;
    return CUDA_SUCCESS;
}

static CUresult get_attributes(unsigned n, CUpointer_attribute *attributes, void **values,
                               CUdeviceptr address)
{
    assert_int_equal(n, 2);
    assert_int_equal(attributes[0], CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    *(unsigned *)values[0] = address >= DEVICE ? CU_MEMORYTYPE_DEVICE : 0;
    *(unsigned *)values[1] = address >= MANAGED;
    return CUDA_SUCCESS;
}

static int set_up(void **state)
{
    (void)state;
    real_table.cuGraphGetNodes = get_nodes;
    real_table.cuGraphNodeGetType = get_type;
    real_table.cuGraphMemcpyNodeGetParams = get_copy;
    real_table.cuGraphChildGraphNodeGetGraph = get_child;
    real_table.cuPointerGetAttributes = get_attributes;
    process.state = PROCESS_SERVING;
    return 0;
}

static CUgraphExec handle(uintptr_t number)
{
    return (CUgraphExec)number;
}

/* Is a graph of this one node, behind kernels, visible to the host? */
static int is_host(struct node last)
{
    struct node node[3] = {
        {.type = CU_GRAPH_NODE_TYPE_KERNEL}, {.type = CU_GRAPH_NODE_TYPE_EMPTY}, last};
    struct graph graph = {node, 3};
    graphs_made(handle(1), (CUgraph)&graph);
    int host = graphs_to_host(handle(1));
    graphs_forget(handle(1));
    assert_true(graphs_to_host(handle(1)));
    return host;
}

static int copy_ends_at_host(CUmemorytype type, CUdeviceptr address)
{
    return is_host((struct node){CU_GRAPH_NODE_TYPE_MEMCPY, type, address, NULL});
}

static void kinds_of_nodes(void **state)
{
    (void)state;
    for (CUgraphNodeType type = 0; type <= 20; type++)
        if (type != CU_GRAPH_NODE_TYPE_GRAPH && type != CU_GRAPH_NODE_TYPE_MEMCPY)
            assert_int_equal(is_host((struct node){.type = type}),
                             type == CU_GRAPH_NODE_TYPE_HOST ||
                                 type >= CU_GRAPH_NODE_TYPE_CONDITIONAL);
}

static void kinds_of_copies(void **state)
{
    (void)state;
    assert_true(copy_ends_at_host(CU_MEMORYTYPE_HOST, DEVICE));
    assert_false(copy_ends_at_host(CU_MEMORYTYPE_ARRAY, 0));
    assert_false(copy_ends_at_host(CU_MEMORYTYPE_DEVICE, DEVICE));
    assert_true(
        copy_ends_at_host(CU_MEMORYTYPE_DEVICE, DEVICE - 1)); /* pinned, by its unified address */
    assert_true(copy_ends_at_host(CU_MEMORYTYPE_DEVICE, MANAGED));
    assert_false(copy_ends_at_host(CU_MEMORYTYPE_UNIFIED, DEVICE));
    assert_true(copy_ends_at_host(CU_MEMORYTYPE_UNIFIED, 1));
}

static void children_are_looked_into(void **state)
{
    struct node deep[40] = {{0}};
    struct graph graph[40];
    (void)state;
    for (int i = 0; i < 40; i++)
        graph[i] = (struct graph){&deep[i], 1};
    for (int i = 0; i + 1 < 40; i++)
        deep[i] = (struct node){.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = &graph[i + 1]};
    deep[39].type = CU_GRAPH_NODE_TYPE_KERNEL;
    assert_false(is_host(deep[36]));
    deep[39].type = CU_GRAPH_NODE_TYPE_HOST;
    assert_true(is_host(deep[36]));
    deep[39].type = CU_GRAPH_NODE_TYPE_KERNEL;
    assert_true(is_host(deep[0])); /* too deep to look */
}

static void life_of_an_exec(void **state)
{
    struct node kernel = {.type = CU_GRAPH_NODE_TYPE_KERNEL},
                host = {.type = CU_GRAPH_NODE_TYPE_HOST};
    struct graph quiet = {&kernel, 1}, visible = {&host, 1}, empty = {NULL, 0};
    (void)state;
    assert_true(graphs_to_host(handle(7)));
    graphs_made(handle(7), (CUgraph)&empty);
    assert_false(graphs_to_host(handle(7)));
    graphs_made(handle(7), (CUgraph)&visible); /* updated */
    assert_true(graphs_to_host(handle(7)));
    graphs_made(handle(7), (CUgraph)&quiet);
    graphs_made(handle(7), (CUgraph)&quiet);
    assert_false(graphs_to_host(handle(7)));
    failing = 1;
    graphs_made(handle(7), (CUgraph)&quiet);
    failing = 0;
    assert_true(graphs_to_host(handle(7)));
    for (uintptr_t i = 1; i < 5000; i++)
        graphs_made(handle(i), (CUgraph)(i % 2 ? &quiet : &visible));
    for (uintptr_t i = 1; i < 5000; i++) {
        assert_int_equal(graphs_to_host(handle(i)), i % 2 == 0);
        graphs_forget(handle(i));
        assert_true(graphs_to_host(handle(i)));
    }
    assert_int_equal(graphs.known.count, 0);
    graphs_forget(handle(1));
}

static void destinations(void **state)
{
    CUdeviceptr to[] = {DEVICE, DEVICE + 5, MANAGED};
    CUDA_MEMCPY2D flat = {.dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = DEVICE};
    CUDA_MEMCPY3D_BATCH_OP box[2] = {{.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY},
                                     {.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER}};
    (void)state;
    assert_false(destination_batch(to, 2));
    assert_true(destination_batch(to, 3));
    assert_false(destination_batch(NULL, 3));
    assert_false(destination_2d(&flat));
    flat.dstDevice = 1;
    assert_true(destination_2d(&flat));
    flat.dstMemoryType = CU_MEMORYTYPE_DEVICE; /* it may be called that */
    assert_true(destination_2d(&flat));
    flat.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    assert_false(destination_2d(&flat));
    assert_false(destination_2d(NULL));
    assert_false(destination_3d_batch(box, 1));
    assert_true(destination_3d_batch(box, 2));
    box[1].dst.op.ptr.ptr = DEVICE;
    assert_false(destination_3d_batch(box, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(kinds_of_nodes, set_up),
        cmocka_unit_test_setup(kinds_of_copies, set_up),
        cmocka_unit_test_setup(children_are_looked_into, set_up),
        cmocka_unit_test_setup(life_of_an_exec, set_up),
        cmocka_unit_test_setup(destinations, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
