/* A green context keeps the primary one that it is of alive, and may be what ends it. Argument:
 * first: the primary context's last release comes after. */
#include "driver_case.h"

int main(int argc, char **argv)
{
    CUgreenCtx green;
    CUcontext of_green, primary = begin();
    CUdeviceptr block;
    int first = argc > 1 && !strcmp(argv[1], "first");
    OK(cuMemFree(make(3 * MIB)));
    OK(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&of_green, green));
    if (!first)
        OK(cuDevicePrimaryCtxRelease(0));
    OK(cuMemFree(make(3 * MIB)));
    while (cuGreenCtxDestroy(green)) /* refused once */
        OK(cuMemFree(make(3 * MIB)));
    SAY(cuMemAlloc(&block, 3 * MIB));
    if (first)
        OK(cuDevicePrimaryCtxRelease(0));
    SAY(cuMemAlloc(&block, 3 * MIB));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    block = make(3 * MIB);
    write_all(NULL, 1000, block, 3 * MIB);
    OK(cuCtxSynchronize());
    SAY(cuMemFree(block));
    return 0;
}
