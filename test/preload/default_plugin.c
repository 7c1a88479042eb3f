/* A plugin linked to the driver, loaded with RTLD_LOCAL: RTLD_DEFAULT searches its own scope too.
 */
#include <dlfcn.h>

#include "driver_case.h"

int run(void);
int run(void)
{
    CUresult (*allocate)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    CUdeviceptr pointer;
    begin();
    SAY(allocate != NULL);
    if (allocate)
        SAY(allocate(&pointer, 1000));
    return 0;
}
