/* instructions WHAT COUNT: does WHAT so many times. Under callgrind, the difference of two counts
 * is what one costs. */
#include <cuda.h>
#include <string.h>

#include "bench.h"
#include "sim.h"

static CUstream stream;
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

static void driver_pair(void)
{
    CUdeviceptr block;
    MUST(cuMemAlloc(&block, 4096));
    MUST(cuMemFree(block));
}

static void set(void)
{
    MUST(cuMemsetD8Async(touched, 0, 4, stream));
}

static void launch(void)
{
    struct cachalot_sim_kernel kernel = {.ns = 1};
    void *parameters[] = {&kernel};
    MUST(cuLaunchKernel(cachalot_sim_function(), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        void (*once)(void);
    } all[] = {{"small", small_pair}, {"recorded", small_pair},
               {"large", large_pair}, {"driver", driver_pair},
               {"set", set},          {"launch", launch}};
    if (count != 3)
        return 2;
    MUST(cudaFree(NULL));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&touched, 4096));
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
