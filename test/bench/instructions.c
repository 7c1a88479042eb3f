/* instructions WHAT COUNT: does WHAT so many times. Under callgrind, the difference of two counts
 * is what one costs. */
#include <cuda.h>
#include <string.h>

#include "bench.h"
#include "sim.h"

static CUstream stream;
static CUgraphExec graph;
static CUdeviceptr touched;

static void pair(size_t bytes)
{
    void *block;
    MUST(cudaMalloc(&block, bytes));
    MUST(cudaFree(block));
}

static void small_pair(void)
{
    pair(4096);
}

static void large_pair(void)
{
    pair(20 << 20);
}

/* One of many that live, for one of another size: merged, split, found by size. */
static void replaced(void)
{
    static void *live[24];
    static unsigned times;
    unsigned number = times++ * 2654435761u;
    void **block = &live[(number >> 8) % (sizeof live / sizeof *live)];
    MUST(cudaFree(*block));
    MUST(cudaMalloc(block, (size_t)(3 + (number >> 20) % 24) << 20));
}

static void driver_pair(void)
{
    CUdeviceptr block;
    MUST(cuMemAlloc(&block, 4096));
    MUST(cuMemFree(block));
}

static void async_pair(void)
{
    CUdeviceptr block;
    MUST(cuMemAllocAsync(&block, 4096, stream));
    MUST(cuMemFreeAsync(block, stream));
}

static void set(void)
{
    MUST(cuMemsetD8Async(touched, 0, 4, stream));
}

static void launch_in(CUstream where)
{
    struct cachalot_sim_kernel kernel = {.ns = 1};
    void *parameters[] = {&kernel};
    MUST(cuLaunchKernel(cachalot_sim_function(), 1, 1, 1, 1, 1, 1, 0, where, parameters, NULL));
}

static void launch(void)
{
    launch_in(stream);
}

static void launch_legacy(void)
{
    launch_in(NULL);
}

static void launch_thread(void)
{
    launch_in(CU_STREAM_PER_THREAD);
}

static void launch_ex(void)
{
    struct cachalot_sim_kernel kernel = {.ns = 1};
    void *parameters[] = {&kernel};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config = {.hStream = stream, .attrs = &attribute, .numAttrs = 1};
    MUST(cuLaunchKernelEx(&config, cachalot_sim_function(), parameters, NULL));
}

static void launch_graph(void)
{
    MUST(cuGraphLaunch(graph, stream));
}

static void copy(void)
{
    MUST(cuMemcpyDtoDAsync(touched, touched + 2048, 4, stream));
}

static void make_graph(void)
{
    CUgraph made;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch();
    MUST(cuStreamEndCapture(stream, &made));
    MUST(cuGraphInstantiateWithFlags(&graph, made, 0));
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        void (*once)(void);
    } all[] = {{"small", small_pair},
               {"recorded", small_pair},
               {"large", large_pair},
               {"replaced", replaced},
               {"driver", driver_pair},
               {"async", async_pair},
               {"set", set},
               {"copy", copy},
               {"launch", launch},
               {"launch_legacy", launch_legacy},
               {"launch_thread", launch_thread},
               {"launch_ex", launch_ex},
               {"launch_graph", launch_graph}};
    if (count != 3)
        return 2;
    MUST(cudaFree(NULL));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&touched, 4096));
    make_graph();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(argument[1], all[i].name))
            for (long n = strtol(argument[2], NULL, 10); n > 0; n--)
                all[i].once();
    MUST(cuCtxSynchronize());
    return 0;
}

void bench_fail(const char *call, int code)
{
    fprintf(stderr, "%s: error %d\n", call, code);
    exit(1);
}
