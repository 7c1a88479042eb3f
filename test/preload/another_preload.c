/* Somebody else's interposer: counts cuMemAlloc_v2 on its way, wraps dlsym, and looks around when it is loaded. */
#include <dlfcn.h>
#include <string.h>

#include "driver_case.h"

static int allocations, depth;

int another_count(void);
int another_count(void)
{
    return allocations;
}

static void *next_dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    if (!next)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!next)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    CHECK(next);
    return next(handle, name);
}

static void *found_by_handle;

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CUresult (*next)(CUdeviceptr *, size_t) =
        (CUresult (*)(CUdeviceptr *, size_t))(found_by_handle ? found_by_handle : next_dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
    allocations++;
    CHECK(next && next != cuMemAlloc_v2 && ++depth < 3);
    CUresult result = next(pointer, bytes);
    depth--;
    return result;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    void *found = next_dlsym(handle, name);
    if (found && handle != RTLD_NEXT && strcmp(name, "cuMemAlloc_v2") == 0 && found != (void *)cuMemAlloc_v2) {
        found_by_handle = found;
        return (void *)cuMemAlloc_v2;
    }
    return found;
}

__attribute__((constructor)) static void loaded(void)
{
    dlsym(RTLD_DEFAULT, "cuInit");
    dlsym(RTLD_NEXT, "cuInit");
    dlsym(RTLD_DEFAULT, "cuNoSuchFunction");
    dlerror();
}
