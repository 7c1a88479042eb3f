/* Copies and sets that stay in their block, to its last byte; then the same by one byte more, and from
 * freed memory. Argument: what a fault is answered with. */
#include "driver_case.h"

#define ROWS 4
#define PITCH 512
#define ROW 300
#define SIZE ((ROWS - 1) * PITCH + ROW) /* of a pitched block, which ends with its last row */

static char host[2 * SIZE];
static CUdeviceptr block, other;

static CUresult flat(size_t more)
{
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = block,
                                .srcPitch = PITCH,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = host,
                                .dstPitch = PITCH,
                                .WidthInBytes = ROW + more,
                                .Height = ROWS};
    return cuMemcpy2D(&copy);
}

static CUresult deep(size_t more)
{
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = host,
                                .srcPitch = PITCH,
                                .srcHeight = ROWS / 2,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = block,
                                .dstPitch = PITCH,
                                .dstHeight = ROWS / 2,
                                .WidthInBytes = ROW + more,
                                .Height = ROWS / 2,
                                .Depth = 2};
    return cuMemcpy3D(&copy);
}

/* All of them, in blocks of SIZE bytes. */
static void all(size_t more, int expected)
{
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    CHECK((int)cuMemcpyHtoD(block, host, SIZE + more) == expected);
    CHECK((int)cuMemcpyDtoH(host, block + SIZE / 2, SIZE / 2 + more) == expected);
    CHECK((int)cuMemcpyDtoDAsync(other, block, SIZE - 8 + 8 * more + more, NULL) == expected);
    CHECK((int)cuMemcpy(other + 4, block, SIZE - 4 + more) == expected);
    CHECK((int)cuMemcpyPeer(other, context, block, context, SIZE + more) == expected);
    CHECK((int)cuMemsetD8(block + SIZE - 1, 1, 1 + more) == expected);
    CHECK((int)cuMemsetD16Async(block, 1, SIZE / 2 + more, NULL) == expected);
    CHECK((int)cuMemsetD32(block, 1, SIZE / 4 + more) == expected);
    CHECK((int)cuMemsetD2D8(block, PITCH, 1, ROW + more, ROWS) == expected);
    CHECK((int)flat(more) == expected);
    CHECK((int)deep(more) == expected);
}

int main(int count, char **argument)
{
    CHECK(count == 2);
    int expected = atoi(argument[1]);
    begin();
    block = make(SIZE);
    other = make(SIZE);
    all(0, 0);
    all(1, expected);
    OK(cuMemFree(block));
    CHECK((int)cuMemcpyDtoH(host, block, 8) == expected);
    CHECK((int)cuMemsetD8(block, 0, 8) == expected);
    OK(cuMemFree(other));
    return 0;
}
