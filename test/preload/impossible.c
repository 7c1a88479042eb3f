/* A kernel runs, and memory that it may use was freed. Each request is for more than that and all
 * the rest of the device: the driver refuses it at once. */
#include <time.h>

#include "driver_case.h"

#define MUCH (64 * MIB) /* the device has 64 MiB, and the program holds 16 of them */

static const CUmemAllocationProp granules = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemPoolProps pool_shape = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUDA_ARRAY_DESCRIPTOR flat = {1024, 64 * 1024, CU_AD_FORMAT_FLOAT, 4};
static int answers, slow;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* On a busy machine a thread may be late: a wait for the kernel lasts seconds. */
#define REFUSED(call)                                                                              \
    do {                                                                                           \
        double began = now();                                                                      \
        CHECK((call) == CUDA_ERROR_OUT_OF_MEMORY);                                                 \
        answers++;                                                                                 \
        slow += now() - began > 0.5;                                                               \
    } while (0)

int main(void)
{
    static volatile int flag;
    CUstream stream;
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    CUarray array;
    size_t pitch;
    void *host;
    begin();
    OK(cuMemPoolCreate(&pool, &pool_shape));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    make(16 * MIB);
    CUdeviceptr block = make(20 * MIB), other = make(10 * MIB);
    OK(cachalot_sim_launch_spin(stream, &flag, NULL, 0));
    write_all(NULL, 1000, other, MIB); /* a second stream: frees take fences */
    if (getenv("LD_PRELOAD")) {        /* natively a free waits for the kernel */
        OK(cuMemFree(block));
        OK(cuMemFree(other));
    }
    REFUSED(cuMemAlloc(&pointer, MUCH));
    for (size_t bytes = 3 * MUCH / 2; bytes > 49 * MIB; bytes = bytes / 10 * 9)
        REFUSED(cuMemAlloc(&pointer, bytes));
    REFUSED(cuMemAlloc(&pointer, SIZE_MAX / 2 + 1));
    REFUSED(cuMemAllocPitch(&pointer, &pitch, MIB, 64, 4));
    REFUSED(cuMemCreate(&handle, MUCH, &granules, 0));
    REFUSED(cuMemAllocAsync(&pointer, MUCH, stream));
    REFUSED(cuMemAllocFromPoolAsync(&pointer, MUCH, pool, stream));
    REFUSED(cuArrayCreate(&array, &flat));
    REFUSED(cuMemHostAlloc(&host, (size_t)1 << 50, 0));
    SAY(answers);
    SAY(slow);
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    return 0;
}
