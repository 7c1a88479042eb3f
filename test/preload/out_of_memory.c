/* Fills a device of 64 MiB with freed memory, then takes 48 MiB (or what fails by itself) in
 * another way. */
#include <string.h>
#include <time.h>

#include "driver_case.h"

static const CUmemAllocationProp granules = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemPoolProps pool_shape = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUDA_ARRAY_DESCRIPTOR flat = {1024, 12 * 1024, CU_AD_FORMAT_FLOAT, 1};
static const CUDA_ARRAY3D_DESCRIPTOR deep = {1024, 1024, 12, CU_AD_FORMAT_FLOAT, 1, 0};
static const CUDA_ARRAY3D_DESCRIPTOR levels = {1024, 1024, 6, CU_AD_FORMAT_FLOAT, 1, 0};

static CUdeviceptr block[3];

/* What was freed is not known to be done with, and another context asks. */
static CUresult take_in_another(void)
{
    CUstream stream;
    CUdeviceptr pointer;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++)
        block[i] = make(15 * MIB); /* more, and the free itself would wait */
    for (int i = 0; i < 3; i++) {
        write_all(i % 2 ? stream : NULL, 20000000, block[i], 1000);
        OK(cuMemFree(block[i]));
    }
    new_context(0);
    return cuMemAlloc(&pointer, 48 * MIB);
}

/* What this context has will do; the other one is busy until the host lets it go on. */
static CUresult take_beside_a_busy_one(void)
{
    static volatile int flag;
    CUstream stream;
    CUdeviceptr pointer;
    OK(cuMemFree(make(15 * MIB)));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cachalot_sim_launch_spin(stream, &flag, NULL, 0));
    new_context(0);
    OK(cuMemFree(make(30 * MIB)));
    time_t began = time(NULL);
    CUresult result = cuMemAlloc(&pointer, 46 * MIB);
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    CHECK(time(NULL) - began < 8); /* a wait for the busy one lasts 10 s */
    return result;
}

/* The simulated module has none; what the driver is told to answer comes before that. */
static CUresult load_global(CUmodule module)
{
    CUdeviceptr pointer;
    size_t bytes;
    CUresult result = cuModuleGetGlobal(&pointer, &bytes, module, "name");
    return result == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : result;
}

static CUresult reach_peer(void)
{
    CUcontext peer;
    CUresult result = cuDevicePrimaryCtxRetain(&peer, 1);
    return result ? result : cuCtxEnablePeerAccess(peer, 0);
}

/* On a stream that is on the books already. */
static CUresult launch(void)
{
    static const unsigned shape[] = {11, 12, 13, 14, 15, 16, 17};
    struct cachalot_sim_kernel kernel = {.ns = 1000, .shape = shape};
    void *parameters[] = {&kernel};
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchCooperativeKernel(cachalot_sim_function(), 1, 1, 1, 1, 1, 1, 0, stream, parameters));
    return cuLaunchKernel(cachalot_sim_function(), 11, 12, 13, 14, 15, 16, 17, stream, parameters,
                          NULL);
}

static CUresult take(const char *what)
{
    static char image[64];
    CUdeviceptr pointer;
    size_t pitch;
    void *host;
    CUarray array;
    CUmipmappedArray mipmapped;
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    CUcontext context;
    CUmodule module;
    CUlibrary library;
    CUstream stream;
    CUevent event;
    CUgraph graph;
    CUgraphExec executable;
    OK(cuGraphCreate(&graph, 0));
#define WAY(name, call)                                                                            \
    if (strcmp(what, name) == 0)                                                                   \
        return call;
    WAY("malloc", cuMemAlloc(&pointer, 48 * MIB))
    WAY("in another context", take_in_another())
    WAY("beside a busy one", take_beside_a_busy_one())
    WAY("pitch", cuMemAllocPitch(&pointer, &pitch, MIB, 48, 4))
    WAY("managed", cuMemAllocManaged(&pointer, 48 * MIB, CU_MEM_ATTACH_GLOBAL))
    WAY("async", cuMemAllocAsync(&pointer, 48 * MIB, NULL))
    WAY("from pool", cuMemPoolCreate(&pool, &pool_shape)
                         ?: cuMemAllocFromPoolAsync(&pointer, 48 * MIB, pool, NULL))
    WAY("array", cuArrayCreate(&array, &flat))
    WAY("3D array", cuArray3DCreate(&array, &deep))
    WAY("mipmapped", cuMipmappedArrayCreate(&mipmapped, &levels, 2))
    WAY("granules", cuMemCreate(&handle, 48 * MIB, &granules, 0))
    WAY("host", cuMemHostAlloc(&host, MIB, 0))
    WAY("host 2", cuMemAllocHost(&host, MIB))
    WAY("context", create_context(&context, 0))
    WAY("retain", cuDevicePrimaryCtxRetain(&context, 0))
    WAY("module", cuModuleLoadData(&module, image))
    WAY("fat binary", cuModuleLoadFatBinary(&module, image))
    WAY("library", cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0))
    WAY("stream", cuStreamCreate(&stream, 0))
    WAY("stream 2", cuStreamCreateWithPriority(&stream, 0, 0))
    WAY("graph", cuGraphInstantiateWithFlags(&executable, graph, 0))
    WAY("event", cuEventCreate(&event, 0))
    WAY("launch", launch())
    WAY("global", cuModuleLoadData(&module, image) ?: load_global(module))
    WAY("peer", reach_peer())
    WAY("pool", cuMemPoolCreate(&pool, &pool_shape))
    return CUDA_ERROR_UNKNOWN;
}

int main(int count, char **argument)
{
    CHECK(count == 2);
    begin();
    for (int i = 0; i < 3 && strcmp(argument[1], "beside a busy one") != 0; i++)
        block[i] = make(16 * MIB);
    for (int i = 0; i < 3; i++)
        OK(cuMemFree(block[i])); /* 0 is none */
    SAY(take(argument[1]));
    return 0;
}
