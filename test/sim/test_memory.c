/*
 * The simulated memory: bytes, addresses, accounts, injected failures.
 */
#include "test_case.h"

#include <string.h>

static void bytes_move(void)
{
    unsigned char from[5000], to[5000];
    begin();
    memset(from, 0xa5, sizeof(from));
    memset(to, 0, sizeof(to));
    OK(cuMemcpyHtoD(memory + 3, from, sizeof(from)));
    OK(cuMemcpyDtoDAsync(memory + 100000, memory + 3, sizeof(from), 0));
    OK(cuMemcpyDtoH(to, memory + 100000, sizeof(to)));
    CHECK(memcmp(from, to, sizeof(to)) == 0);
    OK(cuMemsetD32(memory, 0x01020304, 100));
    OK(cuMemsetD8(memory + 4, 0x77, 2));
    OK(cuMemcpyDtoH(to, memory, 12));
    CHECK(memcmp(to, "\4\3\2\1\x77\x77\2\1\4\3\2\1", 12) == 0);
}

static void boxes_move(void)
{
    unsigned char from[6][10], to[6][10];
    begin();
    for (int i = 0; i < 60; i++)
        from[i / 10][i % 10] = (unsigned char)i;
    OK(cuMemsetD8(memory, 0, 4096));
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcPitch = 10,
                        .srcXInBytes = 2,
                        .srcY = 1,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = memory,
                        .dstPitch = 512,
                        .WidthInBytes = 5,
                        .Height = 4};
    OK(cuMemcpy2D(&in));
    OK(cuMemcpyDtoH(to, memory + 512, 10));
    CHECK(memcmp(to, "\x16\x17\x18\x19\x1a\0\0\0\0\0", 10) == 0);
    /* Columns beside each other do not meet, though their spans do. */
    CUDA_MEMCPY2D left = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory + 65536,
                          .srcPitch = 512,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = 512,
                          .WidthInBytes = 256,
                          .Height = 8};
    CUDA_MEMCPY2D right = left;
    right.dstXInBytes = 256;
    OK(cuMemcpy2DAsync(&left, a));
    OK(cuMemcpy2DAsync(&right, b));
}

static void columns_meet(void)
{
    begin();
    OK(cuMemsetD2D8Async(memory, 512, 1, 257, 8, a));
    OK(cuMemsetD2D8Async(memory + 256, 512, 1, 256, 8, b));
}

static void addresses_and_accounts(void)
{
    CUdeviceptr first, second, small;
    size_t room, left, total, pitch;
    begin();
    OK(cuMemGetInfo(&room, &total));
    GIVES(64 << 20, total);
    OK(cuMemAlloc(&first, (2 << 20) + 1));
    OK(cuMemGetInfo(&left, &total));
    GIVES(4 << 20, room - left);
    GIVES(0, first % (2 << 20));
    OK(cuMemFree(first));
    OK(cuMemAlloc(&second, 3 << 20));
    CHECK(second > first);
    OK(cuMemAlloc(&small, 1));
    CHECK(small > second);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&first, 60 << 20));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&first, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 1));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(second + 512));
    OK(cuMemFree(second));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(second));
    OK(cuMemFree(0));
    OK(cuMemAllocPitch(&first, &pitch, 513, 3, 4));
    GIVES(1024, pitch);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&first, &pitch, 513, 3, 5));
}

static void needs_init_and_context(void)
{
    CUdeviceptr address;
    GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&address, 1));
    OK(cuInit(0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&address, 1));
}

static void async_memory(void)
{
    CUdeviceptr address;
    size_t room, left, total;
    begin();
    OK(cuMemGetInfo(&room, &total));
    OK(cuMemAllocAsync(&address, 2 << 20, a));
    OK(cuMemsetD8Async(address, 1, 100, a));
    OK(cuMemFreeAsync(address, a));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(address, a));
    OK(cuMemGetInfo(&left, &total));
    CHECK(left < room);
    OK(cuStreamSynchronize(a));
    OK(cuMemGetInfo(&left, &total));
    GIVES(room, left);
}

static void async_memory_is_its_streams(void)
{
    CUdeviceptr address;
    begin();
    OK(cuMemAllocAsync(&address, 2 << 20, a));
    OK(cuMemsetD8Async(address, 1, 100, b));
}

static void failures_come_when_asked(void)
{
    CUdeviceptr address;
    begin();
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, 1));
    OK(cuMemAlloc(&address, 1));
    GIVES(999, cuMemFree(address));
    GIVES(999, cuMemFree(address));
    GIVES(3, cuMemAlloc(&address, 1));
    GIVES(4, cachalot_sim_calls("cuMemAlloc_v2"));
}

static void failure_of_nothing(void)
{
    begin();
}

static void dead_contexts_take_their_memory(void)
{
    CUcontext other;
    CUdeviceptr address;
    size_t room, left, total;
    begin();
    OK(cuMemGetInfo(&room, &total));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuMemAlloc(&address, 4 << 20));
    OK(cuCtxDestroy(other));
    OK(cuMemGetInfo(&left, &total));
    GIVES(room, left);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(address));
    OK(cuDevicePrimaryCtxRetain(&other, 0));
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuMemFree(memory));
    OK(cuDevicePrimaryCtxRelease(0));
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&address, 1));
}

static void handles_name_the_base(void)
{
    CUipcMemHandle base, inside;
    begin();
    OK(cuIpcGetMemHandle(&base, memory));
    OK(cuIpcGetMemHandle(&inside, memory + 4096));
    CHECK(memcmp(&base, &inside, sizeof(base)) == 0);
}

static const struct test_case cases[] = {
    {"bytes move", bytes_move, NULL, NULL},
    {"boxes move", boxes_move, MANUAL, NULL},
    {"columns meet", columns_meet, MANUAL, "unordered|cuMemsetD2D8Async|rows"},
    {"addresses and accounts", addresses_and_accounts, "CACHALOT_SIM_CAPACITY=64M", NULL},
    {"needs init and context", needs_init_and_context, NULL, NULL},
    {"async memory", async_memory, MANUAL, NULL},
    {"async memory is its stream's", async_memory_is_its_streams, MANUAL, "unordered|allocation"},
    {"failures come when asked", failures_come_when_asked,
     "CACHALOT_SIM_FAIL=cuMemAlloc_v2:2,cuMemAlloc_v2:4:3,cuMemFree_v2:1+:999", NULL},
    {"failure of nothing", failure_of_nothing, "CACHALOT_SIM_FAIL=cuMemAllok:1", "cuMemAllok"},
    {"dead contexts take their memory", dead_contexts_take_their_memory, NULL, NULL},
    {"handles name the base", handles_name_the_base, NULL, NULL},
};

int main(void)
{
    return test_run(cases, sizeof(cases) / sizeof(cases[0]));
}
