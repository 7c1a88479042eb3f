/* Faults with memory, one for each name. Without an argument the names are listed, each with the kind of
 * fault that the report is to have. The slack is written by sets, as a kernel would write it. */
#include "driver_case.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

#define SIZE 1000
#define LARGE (20 * MIB + 1000)

static char host[2 * LARGE];

static void free_twice(size_t bytes)
{
    CUdeviceptr block = make(bytes);
    OK(cuMemFree(block));
    CHECK(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
}

static void double_small(void)
{
    free_twice(SIZE);
}

static void double_medium(void)
{
    free_twice(3 * MIB);
}

static void double_large(void)
{
    free_twice(LARGE);
}

static void double_in_use(void)
{
    CUdeviceptr block = make(SIZE);
    write_all(NULL, 20000000, block, SIZE);
    OK(cuMemFree(block));
    CHECK(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
}

static void double_runtime(void)
{
    void *block;
    OK(cudaMalloc(&block, SIZE));
    OK(cudaFree(block));
    CHECK(cudaFree(block) == cudaErrorInvalidValue);
}

static void double_async(void)
{
    CUdeviceptr block = make(SIZE);
    OK(cuMemFree(block));
    CHECK(cuMemFreeAsync(block, NULL) == CUDA_ERROR_INVALID_VALUE);
}

static void *freer(void *block)
{
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    CHECK(cuMemFree((CUdeviceptr)(uintptr_t)block) == CUDA_ERROR_INVALID_VALUE);
    return NULL;
}

static void double_elsewhere(void)
{
    pthread_t thread;
    CUdeviceptr block = make(SIZE);
    OK(cuMemFree(block));
    OK(pthread_create(&thread, NULL, freer, (void *)(uintptr_t)block));
    OK(pthread_join(thread, NULL));
}

static void free_inside(size_t bytes, size_t at)
{
    CUdeviceptr block = make(bytes);
    CHECK(cuMemFree(block + at) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(block));
}

static void interior_byte(void)
{
    free_inside(SIZE, 1);
}

static void interior_grain(void)
{
    free_inside(4096, 512);
}

static void interior_large(void)
{
    free_inside(LARGE, 2 * MIB);
}

static void interior_last(void)
{
    free_inside(LARGE, LARGE - 1);
}

static void interior_async(void)
{
    CUdeviceptr block = make(SIZE);
    CHECK(cuMemFreeAsync(block + 8, NULL) == CUDA_ERROR_INVALID_VALUE);
}

static void interior_runtime(void)
{
    char *block;
    OK(cudaMalloc((void **)&block, 4096));
    CHECK(cudaFree(block + 1024) == cudaErrorInvalidValue);
}

static void foreign_heap(void)
{
    CHECK(cuMemFree((CUdeviceptr)(uintptr_t)host) == CUDA_ERROR_INVALID_VALUE);
}

static void foreign_number(void)
{
    CHECK(cuMemFree(0x1234) == CUDA_ERROR_INVALID_VALUE);
}

static void foreign_runtime(void)
{
    CHECK(cudaFree(host) == cudaErrorInvalidValue);
}

static void foreign_host(void)
{
    CHECK(cuMemFreeHost(host) == CUDA_ERROR_INVALID_VALUE);
}

static void foreign_host_twice(void)
{
    void *block;
    OK(cuMemAllocHost(&block, SIZE));
    OK(cuMemFreeHost(block));
    CHECK(cuMemFreeHost(block) == CUDA_ERROR_INVALID_VALUE);
}

static void foreign_registered(void)
{
    CHECK(cuMemHostUnregister(host) != CUDA_SUCCESS);
}

static void foreign_pool(void)
{
    CUdeviceptr block;
    OK(cuMemAllocAsync(&block, SIZE, NULL));
    OK(cuMemFreeAsync(block, NULL));
    CHECK(cuMemFreeAsync(block, NULL) == CUDA_ERROR_INVALID_VALUE);
}

/* Copies and sets, with blocks of SIZE bytes, by `more` bytes too far. */
static CUdeviceptr block, other;
static size_t more;
static CUstream stream;
static CUcontext context;

static CUresult to_device(void)
{
    return cuMemcpyHtoD(block, host, SIZE + more);
}

static CUresult to_device_async(void)
{
    return cuMemcpyHtoDAsync(block, host, SIZE + more, stream);
}

static CUresult to_host(void)
{
    return cuMemcpyDtoH(host, block, SIZE + more);
}

static CUresult to_host_async(void)
{
    return cuMemcpyDtoHAsync(host, block + 8, SIZE - 8 + more, stream);
}

static CUresult between(void)
{
    return cuMemcpyDtoD(other, block, SIZE + more);
}

static CUresult between_async(void)
{
    return cuMemcpyDtoDAsync(other, block, SIZE + more, stream);
}

static CUresult any(void)
{
    return cuMemcpy(other, block, SIZE + more);
}

static CUresult any_async(void)
{
    return cuMemcpyAsync(other, block, SIZE + more, stream);
}

static CUresult peer(void)
{
    return cuMemcpyPeer(other, context, block, context, SIZE + more);
}

static CUresult peer_async(void)
{
    return cuMemcpyPeerAsync(other, context, block, context, SIZE + more, stream);
}

static CUresult set_8(void)
{
    return cuMemsetD8(block, 1, SIZE + more);
}

static CUresult set_8_async(void)
{
    return cuMemsetD8Async(block, 1, SIZE + more, stream);
}

static CUresult set_16(void)
{
    return cuMemsetD16(block, 1, (SIZE + more + 1) / 2);
}

static CUresult set_32_async(void)
{
    return cuMemsetD32Async(block, 1, (SIZE + more + 3) / 4, stream);
}

static CUresult set_2d(void)
{
    return cuMemsetD2D8(block, 500, 1, 400, more ? 3 : 2);
}

static CUresult runtime_copy(void)
{
    return (CUresult)cudaMemcpy((void *)(uintptr_t)block, host, SIZE + more,
                                cudaMemcpyHostToDevice);
}

static CUresult runtime_set(void)
{
    return (CUresult)cudaMemset((void *)(uintptr_t)block, 0, SIZE + more);
}

static CUresult rows(void)
{
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = block,
                                .srcPitch = 250,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = host,
                                .dstPitch = 250,
                                .WidthInBytes = 200,
                                .Height = more ? 5 : 4};
    return cuMemcpy2D(&copy);
}

static CUresult planes(void)
{
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = host,
                                .srcPitch = 100,
                                .srcHeight = 5,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = block,
                                .dstPitch = 100,
                                .dstHeight = 5,
                                .WidthInBytes = 100,
                                .Height = 5,
                                .Depth = more ? 3 : 2};
    return cuMemcpy3D(&copy);
}

static void two_blocks(void)
{
    OK(cuCtxGetCurrent(&context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    block = make(SIZE);
    other = make(8 * SIZE);
}

static void too_far(CUresult (*call)(void), size_t by)
{
    two_blocks();
    OK(call());
    more = by;
    OK(call());
    OK(cuCtxSynchronize());
}

static void too_late(CUresult (*call)(void))
{
    two_blocks();
    OK(cuMemFree(block));
    OK(call());
    OK(cuCtxSynchronize());
}

/* Writes behind a block of `bytes` bytes. */
static CUdeviceptr overrun(size_t bytes, size_t at, size_t count)
{
    CUdeviceptr victim = make(bytes);
    OK(cuMemsetD8(victim, 0, bytes));
    OK(cuMemsetD8Async(victim + bytes + at, 1, count, NULL));
    return victim;
}

static void then_free(CUdeviceptr victim)
{
    OK(cuMemFree(victim));
}

static void overrun_byte(void)
{
    then_free(overrun(SIZE, 0, 1));
}

static void overrun_last(void)
{
    then_free(overrun(SIZE, 23, 1));
}

static void overrun_all(void)
{
    then_free(overrun(SIZE, 0, 24));
}

static void overrun_far(void)
{
    then_free(overrun(1, 500, 11));
}

static void overrun_one(void)
{
    then_free(overrun(1, 0, 1));
}

static void overrun_odd(void)
{
    then_free(overrun(513, 1, 2));
}

static void overrun_medium(void)
{
    then_free(overrun(3 * MIB + 1, 0, 8));
}

static void overrun_large(void)
{
    then_free(overrun(LARGE, 1, 4));
}

static void overrun_kept(void)
{
    overrun(SIZE, 0, 4);
    OK(cuCtxSynchronize());
}

static void overrun_async(void)
{
    CUdeviceptr victim = overrun(SIZE, 0, 4);
    OK(cuCtxSynchronize());
    OK(cuMemFreeAsync(victim, NULL));
}

static void overrun_runtime(void)
{
    char *victim;
    OK(cudaMalloc((void **)&victim, SIZE));
    OK(cudaMemset(victim + SIZE, 1, 4));
    OK(cudaFree(victim));
}

static void overrun_again(void)
{
    for (int i = 0; i < 10; i++) { /* the block comes again, each time with slack of its own */
        CUdeviceptr same = make(SIZE - (size_t)i);
        OK(cuMemsetD8(same, 0, SIZE - (size_t)i));
        OK(cuMemFree(same));
    }
    then_free(overrun(SIZE - 10, 0, 1));
}

#define FREES(X)                                                                                   \
    X(double_small, double_free)                                                                   \
    X(double_medium, double_free)                                                                  \
    X(double_large, double_free)                                                                   \
    X(double_in_use, double_free)                                                                  \
    X(double_runtime, double_free)                                                                 \
    X(double_async, double_free)                                                                   \
    X(double_elsewhere, double_free)                                                               \
    X(interior_byte, interior_free)                                                                \
    X(interior_grain, interior_free)                                                               \
    X(interior_large, interior_free)                                                               \
    X(interior_last, interior_free)                                                                \
    X(interior_async, interior_free)                                                               \
    X(interior_runtime, interior_free)                                                             \
    X(foreign_heap, foreign_free)                                                                  \
    X(foreign_number, foreign_free)                                                                \
    X(foreign_runtime, foreign_free)                                                               \
    X(foreign_host, foreign_free)                                                                  \
    X(foreign_host_twice, foreign_free)                                                            \
    X(foreign_registered, foreign_free)                                                            \
    X(foreign_pool, foreign_free)                                                                  \
    X(overrun_byte, overrun)                                                                       \
    X(overrun_last, overrun)                                                                       \
    X(overrun_all, overrun)                                                                        \
    X(overrun_far, overrun)                                                                        \
    X(overrun_one, overrun)                                                                        \
    X(overrun_odd, overrun)                                                                        \
    X(overrun_medium, overrun)                                                                     \
    X(overrun_large, overrun)                                                                      \
    X(overrun_kept, overrun)                                                                       \
    X(overrun_async, overrun)                                                                      \
    X(overrun_runtime, overrun)                                                                    \
    X(overrun_again, overrun)
#define RANGES(X)                                                                                  \
    X(to_device, 1)                                                                                \
    X(to_device_async, 4)                                                                          \
    X(to_host, 8)                                                                                  \
    X(to_host_async, 24)                                                                           \
    X(between, 1)                                                                                  \
    X(between_async, 100)                                                                          \
    X(any, 4096)                                                                                   \
    X(any_async, 1)                                                                                \
    X(peer, 1)                                                                                     \
    X(peer_async, 16)                                                                              \
    X(set_8, 1)                                                                                    \
    X(set_8_async, 4096)                                                                           \
    X(set_16, 2)                                                                                   \
    X(set_32_async, 4)                                                                             \
    X(set_2d, 1)                                                                                   \
    X(runtime_copy, 1)                                                                             \
    X(runtime_set, 512)                                                                            \
    X(rows, 1)                                                                                     \
    X(planes, 1)

int main(int count, char **argument)
{
#define X(name, kind)                                                                              \
    if (count < 2)                                                                                 \
        puts(#name " " #kind);                                                                     \
    else if (!strcmp(argument[1], #name))                                                          \
        return begin(), name(), 0;
    FREES(X)
#undef X
#define X(name, by)                                                                                \
    if (count < 2)                                                                                 \
        puts(#name "_past_end past_end\n" #name "_after_free after_free");                         \
    else if (!strcmp(argument[1], #name "_past_end"))                                              \
        return begin(), too_far(name, by), 0;                                                      \
    else if (!strcmp(argument[1], #name "_after_free"))                                            \
        return begin(), too_late(name), 0;
    RANGES(X)
#undef X
    return count < 2 ? 0 : 2;
}
