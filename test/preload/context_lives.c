/* context_lives destroy|reset: a context whose end the driver refused. What is in it stays. */
#include <string.h>

#include "driver_case.h"

int main(int argc, char **argv)
{
    int reset = argc > 1 && !strcmp(argv[1], "reset");
    CUcontext context = begin();
    if (!reset)
        context = new_context(0);
    static const size_t sizes[] = {1000, 40 * MIB};
    CUdeviceptr blocks[2];
    for (int i = 0; i < 2; i++)
        blocks[i] = make(sizes[i]);
    SAY(reset ? cuDevicePrimaryCtxReset(0) : cuCtxDestroy(context));
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++) {
        unsigned char seen = 0;
        OK(cuMemsetD8_v2(blocks[i], 7, sizes[i]));
        OK(cuMemcpyDtoH_v2(&seen, blocks[i] + sizes[i] - 1, 1));
        SAY(seen);
        CUdeviceptr another = make(sizes[i]);
        CHECK(another != blocks[i]);
        SAY(cuMemFree(another));
    }
    return 0;
}
