/* The driver by dlopen and dlsym. The plain names of the 32-bit era stay what they are. */
#include <dlfcn.h>
#include <string.h>

#include "functions.h"

int main(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda);
#define FIND(name) (__typeof__(&name))dlsym(cuda, #name)
    struct functions f = {FIND(cuInit),          FIND(cuDevicePrimaryCtxRetain),
                          FIND(cuCtxSetCurrent), FIND(cuMemAlloc_v2),
                          FIND(cuMemFree_v2),    FIND(cuMemAllocAsync),
                          FIND(cuMemFreeAsync)};
    use(&f);
    SAY(dlsym(cuda, "cuMemAlloc") && dlsym(cuda, "cuMemAlloc") != dlsym(cuda, "cuMemAlloc_v2"));
    SAY(dlsym(cuda, "cuMemAlloc_v2") == (void *)f.alloc);
    Dl_info info;
    SAY(dladdr(dlsym(cuda, "cuMemAlloc"), &info) && info.dli_sname && info.dli_fname &&
        strstr(info.dli_fname, "libcuda.so.1"));
    return 0;
}
