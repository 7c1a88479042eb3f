/* What the driver refuses stays refused, with its own codes. */
#include <stdint.h>

#include "driver_case.h"

/* The very bytes behind a block's begin, when that block was the last one that a free looked for. */
static void free_beside(size_t bytes)
{
    CUdeviceptr pointer = make(bytes);
    OK(cuMemFree(pointer));
    SAY(cuMemFree(pointer));
    pointer = make(bytes);
    for (int i = 1; i < 4; i++) {
        SAY(cuMemFreeAsync(pointer + i, NULL));
        SAY(cuMemFree(pointer + i));
    }
    SAY(cuMemFree(pointer));
}

static void ask_for_rows(void)
{
    for (size_t rows = 0; rows <= (size_t)1 << 40; rows = rows * 1024 + 1) {
        size_t pitch = 7;
        CUdeviceptr pointer = 0x77;
        CUresult result = cuMemAllocPitch(&pointer, &pitch, 1000, rows, 4);
        printf("%zx rows: %d %d %zu\n", rows, result, result ? (int)pointer : 1, pitch);
        if (result == CUDA_SUCCESS)
            SAY(cuMemFree(pointer));
    }
}

int main(void)
{
    CUdeviceptr pointer, small, large;
    SAY(cuMemAlloc(&pointer, 100)); /* before cuInit */
    SAY(cuMemFree(0x1000));
    OK(cuInit(0));
    SAY(cuMemAlloc(&pointer, 100)); /* without a context */
    SAY(cuMemFree(0x1000));
    SAY(cuMemFree(0));
    begin();
    static const size_t sizes[] = {0,
                                   SIZE_MAX,
                                   SIZE_MAX - 1,
                                   SIZE_MAX - 511,
                                   SIZE_MAX - 512,
                                   SIZE_MAX - 2 * MIB + 1,
                                   SIZE_MAX - 2 * MIB,
                                   SIZE_MAX / 2,
                                   SIZE_MAX / 2 + 1,
                                   SIZE_MAX / 2 - 511,
                                   (size_t)1 << 62,
                                   ((size_t)1 << 62) + 1,
                                   ((size_t)1 << 62) - 1,
                                   (size_t)1 << 40,
                                   (size_t)8 << 30,
                                   ((size_t)8 << 30) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pointer = 0x77;
        CUresult result = cuMemAlloc(&pointer, sizes[i]);
        printf("%zx: %d %d\n", sizes[i], result, result ? pointer == 0x77 : 1);
        if (result == CUDA_SUCCESS)
            SAY(cuMemFree(pointer));
    }
    ask_for_rows();
    SAY(cuMemAlloc(NULL, 100));
    SAY(cuMemAlloc(NULL, 0));
    small = make(1000);
    large = make(3 * MIB);
    SAY(cuMemFree(small + 1));
    SAY(cuMemFree(small + 512));
    SAY(cuMemFree(large + 4096));
    SAY(cuMemFree(large + 3 * MIB));
    SAY(cuMemFreeAsync(small + 1, NULL));
    SAY(cuMemFree(small));
    SAY(cuMemFree(small));
    SAY(cuMemFreeAsync(small, NULL));
    SAY(cuMemFree(large));
    SAY(cuMemFree(large));
    SAY(cuMemFreeAsync(large, NULL));
    SAY(cuMemFree(0));
    SAY(cuMemFreeAsync(0, NULL));
    SAY(cuMemFree(0x1234));
    SAY(cuMemFree((CUdeviceptr)(uintptr_t)&small));
    SAY(cuMemFree(~(CUdeviceptr)0));
    SAY(cuMemFree(make(1000)));
    free_beside(1000);
    free_beside(3 * MIB);
    return 0;
}
