/* context_ended release|reset: what a primary context gives that has ended, but is current: nothing, of
 * any size; and when it is there again. */
#include <string.h>

#include "driver_case.h"

static const size_t sizes[] = {1000, MIB, 5 * MIB, 40 * MIB};
#define SIZES (sizeof sizes / sizeof *sizes)

static void ask(void)
{
    CUdeviceptr block;
    int device;
    SAY(cuCtxGetDevice(&device));
    for (unsigned i = 0; i < SIZES; i++)
        SAY(cuMemAlloc(&block, sizes[i]));
}

int main(int argc, char **argv)
{
    CUcontext context = begin(), again;
    CHECK(argc == 2);
    for (unsigned i = 0; i < SIZES; i++)
        OK(cuMemFree(make(sizes[i])));
    SAY(strcmp(argv[1], "reset") ? cuDevicePrimaryCtxRelease(0) : cuDevicePrimaryCtxReset(0));
    ask();
    ask();
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(again == context);
    OK(cuCtxSetCurrent(again));
    ask();
    return 0;
}
