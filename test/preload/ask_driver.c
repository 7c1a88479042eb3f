/* A library that calls the driver by what comes next after itself. */
#include <dlfcn.h>

#include "driver_case.h"

void allocate_by_next(void);
void allocate_by_next(void)
{
    CUresult (*allocate)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    CUresult (*give)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))dlsym(RTLD_NEXT, "cuMemFree_v2");
    CUdeviceptr block;
    CHECK(allocate && give);
    for (int i = 0; i < 6; i++) {
        OK(allocate(&block, 1000));
        if (i < 5)
            OK(give(block));
    }
}
