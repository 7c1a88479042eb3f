/* Somebody else's interposer: counts cuMemAlloc_v2 on its way to the next one, which it finds by
 * ANOTHER_WAY. */
#include <dlfcn.h>
#include <string.h>

#include "driver_case.h"

static int allocations, depth;

int another_count(void);
int another_count(void)
{
    return allocations;
}

static void *find_next(void)
{
    const char *way = getenv("ANOTHER_WAY");
    if (way && strcmp(way, "handle") == 0)
        return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    return dlsym(RTLD_NEXT, "cuMemAlloc_v2");
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CUresult (*next)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))find_next();
    allocations++;
    CHECK(next && next != cuMemAlloc_v2 && ++depth == 1);
    CUresult result = next(pointer, bytes);
    depth--;
    return result;
}

/* Earlier than other constructors, if we are the last preload. */
__attribute__((constructor)) static void loaded(void)
{
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    dlsym(RTLD_NEXT, "cuInit");
    CHECK(!dlsym(RTLD_DEFAULT, "cuNoSuchFunction") && dlerror());
}
