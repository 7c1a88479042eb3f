/* 6 requests by linked calls, or by a name that dlsym finds; how many the other interposer saw. */
#include <dlfcn.h>

#include "driver_case.h"

int main(int count, char **argument)
{
    CUresult (*allocate)(CUdeviceptr *, size_t) = cuMemAlloc;
    CUdeviceptr pointer;
    if (count > 1)
        allocate = (CUresult(*)(CUdeviceptr *, size_t))dlsym(dlopen("libcuda.so.1", RTLD_NOW),
                                                             argument[1]);
    begin();
    for (int i = 0; i < 6; i++)
        OK(allocate(&pointer, 1000));
    int (*seen)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "another_count");
    SAY(seen ? seen() : 0);
    return 0;
}
