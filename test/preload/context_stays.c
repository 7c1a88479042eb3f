/* Calls that do not end a context: a release that is not the last, a destroy that the driver
 * refuses. */
#include "driver_case.h"

int main(void)
{
    CUcontext context = begin(), more;
    OK(cuDevicePrimaryCtxRetain(&more, 0));
    CUdeviceptr small = make(1000), other = make(1000), large = make(3 * MIB);
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuMemFree(small));
    SAY(cuCtxDestroy(context)); /* not for primary contexts */
    SAY(cuCtxDestroy(NULL));
    SAY(cuDevicePrimaryCtxRelease(7));
    SAY(cuDevicePrimaryCtxReset(7));
    write_all(NULL, 1000, other, 1000);
    SAY(cuMemFree(other));
    SAY(cuMemFree(large));
    SAY(cuMemFree(make(1000)));
    return 0;
}
