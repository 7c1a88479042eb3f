/* There is a tool in the program: called back within the driver's functions (all of them, or the
 * one named), it uses the driver itself. */
#include <string.h>

#include "driver_case.h"

static const char *watched;
static int fills;               /* the device is full */
static int sleeps, keeps, kept; /* keeps, kept: a reference to the context */
static _Thread_local int inside, times;

#define MOST_TIMES 400 /* some of ours are called for each 2 MiB of a device */

static void use_the_driver(size_t bytes)
{
    CUcontext context, popped;
    CUdeviceptr block;
    size_t available, total;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxPushCurrent(context));
    OK(cuMemGetInfo(&available, &total));
    CUresult result = cuMemAlloc(&block, bytes);
    if (result == CUDA_SUCCESS) {
        OK(cuMemsetD8Async(block, 1, 1000, CU_STREAM_PER_THREAD));
        OK(cuMemFree(block));
    } else {
        CHECK(result == CUDA_ERROR_OUT_OF_MEMORY && fills);
    }
    OK(cuCtxPopCurrent(&popped));
    if (keeps && !kept)
        kept = 1;
    else
        OK(cuDevicePrimaryCtxRelease(0));
}

static void called_back(const char *function, int returning)
{
    if (inside || sleeps || (strcmp(watched, "*") != 0 && strcmp(watched, function) != 0) ||
        (keeps && !returning) || times++ > MOST_TIMES)
        return;
    inside = 1;
    use_the_driver(1000);
    use_the_driver(3 * MIB);
    inside = 0;
}

static void work(void)
{
    CUstream one, other;
    OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUdeviceptr held = make(30 * MIB), small = make(100), freed = make(3 * MIB);
    write_all(one, 100000, freed, 3 * MIB);
    SAY(cuMemFree(freed));
    CUdeviceptr again = make(3 * MIB);
    write_all(other, 1000, again, 3 * MIB);
    write_all(one, 1000, held, 30 * MIB);
    write_all(other, 1000, small, 100);
    SAY(cuMemFree(again));
    SAY(cuStreamDestroy(one));
    SAY(cuStreamDestroy(other));
}

static void fill(void)
{
    CUdeviceptr last, next;
    fills = 1;
    OK(cuMemAlloc(&last, 16 * MIB));
    while (cuMemAlloc(&next, 16 * MIB) == CUDA_SUCCESS)
        last = next;
    SAY(cuMemFree(last));
    SAY(cuMemAlloc(&last, 16 * MIB));
}

int main(int count, char **argument)
{
    CHECK(count >= 2);
    watched = argument[1];
    sleeps = keeps = count > 2;
    cachalot_sim_subscribe(called_back);
    OK(cuInit(0));
    for (int round = 0; round < 4; round++) {
        CUcontext context;
        CUdeviceptr late;
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        work();
        if (round == 1)
            fill();
        sleeps = keeps && round != 1 && round != 3; /* in a call of the program, not one of ours */
        SAY(round < 2 ? cuDevicePrimaryCtxReset(0) : cuDevicePrimaryCtxRelease(0));
        sleeps = keeps;
        fills = 0;
        CUresult lives = cuMemAlloc(&late, 100);
        SAY(lives);
        if (lives == CUDA_SUCCESS)
            work();
    }
    return 0;
}
