/* The driver by cuGetProcAddress. Arguments: its parameters (4 or 5), flags (0 or 2), and whether
 * it is asked for itself first (0 or 1). */
#include <dlfcn.h>

#include "functions.h"

static __typeof__(cuGetProcAddress) *find4;
static __typeof__(cuGetProcAddress_v2) *find5;
static cuuint64_t flags;

static void *find(const char *name)
{
    void *function = NULL;
    CUresult result =
        find5 ? find5(name, &function, 12000, flags, NULL) : find4(name, &function, 11030, flags);
    return result ? NULL : function;
}

int main(int count, char **argument)
{
    CHECK(count == 4);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda);
    if (atoi(argument[1]) == 4)
        find4 = (__typeof__(find4))dlsym(cuda, "cuGetProcAddress");
    else
        find5 = (__typeof__(find5))dlsym(cuda, "cuGetProcAddress_v2");
    flags = (cuuint64_t)atoi(argument[2]);
    for (int i = 0; i < atoi(argument[3]); i++) {
        void *itself = find("cuGetProcAddress");
        CHECK(itself);
        if (find5)
            find5 = (__typeof__(find5))itself;
        else
            find4 = (__typeof__(find4))itself;
    }
    struct functions f = {.init = find("cuInit")};
    f.retain = find("cuDevicePrimaryCtxRetain");
    f.set_current = find("cuCtxSetCurrent");
    f.alloc = find("cuMemAlloc");
    f.free = find("cuMemFree");
    f.alloc_async = find("cuMemAllocAsync");
    f.free_async = find("cuMemFreeAsync");
    use(&f);
    SAY(find("cuNoSuchFunction") == NULL);
    return 0;
}
