/* Access of a second device to mapped memory of the first: from its first context on, for what is
 * there and for what comes; what a program enables and disables changes nothing. */
#include "driver_case.h"

static CUcontext context[2];
static CUdeviceptr block[2];

static long long may(CUdeviceptr pointer)
{
    return cachalot_sim_may_access(pointer, 1);
}

static void show(void)
{
    SAY(may(block[0]));
    SAY(may(block[1]));
}

int main(void)
{
    OK(cuInit(0));
    context[0] = new_context(0);
    block[0] = make(4 * MIB);
    SAY(may(block[0]));
    context[1] = new_context(1);
    SAY(may(block[0]));
    OK(cuCtxEnablePeerAccess(context[0], 0));
    OK(cuCtxSetCurrent(context[0]));
    block[1] = make(40 * MIB);
    show();
    OK(cuCtxSetCurrent(context[1]));
    OK(cuMemsetD8(block[1], 1, 4 * MIB));
    new_context(1);
    OK(cuCtxEnablePeerAccess(context[0], 0));
    OK(cuCtxDisablePeerAccess(context[0]));
    show();
    OK(cuCtxSetCurrent(context[1]));
    OK(cuCtxDisablePeerAccess(context[0]));
    show();
    OK(cuCtxSetCurrent(context[0]));
    OK(cuMemFree(block[1]));
    block[1] = make(80 * MIB);
    show();
    OK(cuMemsetD8(block[1], 1, 80 * MIB));
    OK(cuCtxSetCurrent(context[1]));
    OK(cuCtxEnablePeerAccess(context[0], 0));
    show();
    return 0;
}
