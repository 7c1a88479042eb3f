/*
 * An ordinary runtime program, built against each of the cudarts, of version RUNTIME; how each starts is counted.
 */
#include "test_case.h"

#include <cuda_runtime_api.h>
#include <string.h>

static void starts_like_its_version(void)
{
    void *memory_of_ours;
    int version;
    OK(cudaMalloc(&memory_of_ours, 1));
    OK(cudaRuntimeGetVersion(&version));
    GIVES(RUNTIME, version);
    unsigned long long two = cachalot_sim_calls("cuGetProcAddress_v2");
    unsigned long long one = cachalot_sim_calls("cuGetProcAddress");
    GIVES(RUNTIME == 13010, cachalot_sim_calls("cuDriverGetVersion"));
    if (RUNTIME >= 13000)
        CHECK(two > 100 && one == 0);
    else if (RUNTIME == 11030)
        CHECK(two == 0 && one > 100);
    else
        CHECK(RUNTIME == 11020 && two == 0 && one == 0);
    GIVES(1, cachalot_sim_calls("cuInit"));
    GIVES(1, cachalot_sim_calls("cuMemAlloc_v2"));
}

static int look_ups(int newest)
{
    int count = 4; /* the empty name, cuInit, cuGetProcAddress twice */
#define DRIVER(name, since, symbol) count += (since) <= newest ? 2 : 0;
#define TWIN(name, since, symbol, suffix) DRIVER(name, since, symbol)
#include "cudart/driver_functions.def"
#undef DRIVER
#undef TWIN
    return count;
}

/* From 13.1 on a runtime asks for nothing that the driver is too old for. */
static void asks_for_what_the_driver_has(int driver)
{
    int version;
    if (RUNTIME < 13000)
        return;
    OK(cudaRuntimeGetVersion(&version));
    CHECK(look_ups(12020) < look_ups(13000));
    GIVES(look_ups(RUNTIME == 13010 ? driver : RUNTIME), cachalot_sim_calls("cuGetProcAddress_v2"));
}

static void asks_an_old_driver(void)
{
    asks_for_what_the_driver_has(12020);
}

static void asks_a_driver_of_its_age(void)
{
    asks_for_what_the_driver_has(13000);
}

static void asks_for_the_drivers_version_first(void)
{
    int count;
    if (RUNTIME != 13010)
        return;
    GIVES(cudaErrorInsufficientDriver, cudaGetDeviceCount(&count));
    GIVES(0, cachalot_sim_calls("cuGetProcAddress_v2"));
    GIVES(0, cachalot_sim_calls("cuInit"));
}

static void devices_are_chosen_late_or_early(void)
{
    int device = -1;
    OK(cudaSetDevice(1));
    GIVES(RUNTIME >= 13000, cachalot_sim_calls("cuDevicePrimaryCtxRetain"));
    OK(cudaFree(NULL));
    GIVES(1, cachalot_sim_calls("cuDevicePrimaryCtxRetain"));
    GIVES(0, cachalot_sim_calls("cuMemFree_v2"));
    OK(cudaGetDevice(&device));
    GIVES(1, device);
    GIVES(cudaErrorInvalidDevice, cudaSetDevice(2));
}

static void errors_are_remembered(void)
{
    void *out = &out;
    GIVES(cudaErrorMemoryAllocation, cudaMalloc(&out, (size_t)1 << 40));
    GIVES(cudaErrorMemoryAllocation, cudaPeekAtLastError());
    GIVES(cudaErrorMemoryAllocation, cudaGetLastError());
    OK(cudaGetLastError());
    OK(cudaMalloc(&out, 0));
    CHECK(out == NULL);
    GIVES(cudaErrorInvalidValue, cudaFree((void *)0x1234));
    CHECK(strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") == 0);
}

static void a_program_runs(void)
{
    unsigned char from[300], to[300];
    void *device, *rows;
    size_t pitch;
    cudaStream_t stream;
    memset(from, 7, sizeof(from));
    OK(cudaMalloc(&device, sizeof(from)));
    OK(cudaMallocPitch(&rows, &pitch, 100, 3));
    GIVES(512, pitch);
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMemcpyAsync(device, from, sizeof(from), cudaMemcpyHostToDevice, stream));
    OK(cudaMemsetAsync(device, 9, 100, stream));
    OK(cudaMemcpy2DAsync(rows, pitch, device, 100, 100, 3, cudaMemcpyDeviceToDevice, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy2D(to, 100, rows, pitch, 100, 3, cudaMemcpyDefault));
    CHECK(to[0] == 9 && to[99] == 9 && to[100] == 7 && to[299] == 7);
    OK(cudaFree(rows));
    OK(cudaFree(device));
    OK(cudaDeviceReset());
    OK(cudaMalloc(&device, 1));
}

static void kernels_stand_in(void)
{
    struct cachalot_sim_kernel kernel = {.ns = 1000};
    void *arguments[] = {&kernel};
    dim3 one = {1, 1, 1};
    OK(cudaLaunchKernel((const void *)cachalot_sim_function(), one, one, arguments, 0, NULL));
    GIVES(cudaErrorInvalidDeviceFunction,
          cudaLaunchKernel((const void *)kernels_stand_in, one, one, arguments, 0, NULL));
    GIVES(cudaErrorNotReady, cudaStreamQuery(NULL));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamQuery(NULL));
}

static void captures_work(void)
{
    void *device;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    unsigned char byte;
    OK(cudaMalloc(&device, 100));
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(device, 5, 100, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaMemcpy(&byte, device, 1, cudaMemcpyDeviceToHost));
    GIVES(5, byte);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    GIVES(cudaErrorStreamCaptureUnsupported, cudaMalloc(&device, 1));
    GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
}

static const struct test_case cases[] = {
    {"starts like its version", starts_like_its_version, NULL, NULL},
    {"asks an old driver", asks_an_old_driver, "CACHALOT_SIM_DRIVER=12020", NULL},
    {"asks a driver of its age", asks_a_driver_of_its_age, NULL, NULL},
    {"asks for the driver's version first", asks_for_the_drivers_version_first,
     "CACHALOT_SIM_FAIL=cuDriverGetVersion:1:999", NULL},
    {"devices are chosen late or early", devices_are_chosen_late_or_early, "CACHALOT_SIM_DEVICES=2",
     NULL},
    {"errors are remembered", errors_are_remembered, NULL, NULL},
    {"a program runs", a_program_runs, NULL, NULL},
    {"kernels stand in", kernels_stand_in, MANUAL, NULL},
    {"captures work", captures_work, NULL, NULL},
};

int main(void)
{
    return test_run(cases, sizeof(cases) / sizeof(cases[0]));
}
