/* A libcuda in two stages, as that of WSL: it exports a few functions, and its cuGetProcAddress
 * hands out those of another object, the file TWO_STAGE_SECOND. */
#include <dlfcn.h>
#include <stdlib.h>

#include "interpose/resolve/cuda_api.h"

#undef cuGetProcAddress
#pragma GCC visibility push(default)

static void *second(const char *name)
{
    return dlsym(dlopen(getenv("TWO_STAGE_SECOND"), RTLD_NOW), name);
}

CUresult cuInit(unsigned flags)
{
    return ((CUresult(*)(unsigned))second("cuInit"))(flags);
}

CUresult cuDriverGetVersion(int *version)
{
    return ((CUresult(*)(int *))second("cuDriverGetVersion"))(version);
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    return ((CUresult(*)(const void **, const CUuuid *))second("cuGetExportTable"))(table, id);
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return ((__typeof__(&cuGetProcAddress))second("cuGetProcAddress"))(symbol, function, version,
                                                                       flags);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    return ((__typeof__(&cuGetProcAddress_v2))second("cuGetProcAddress_v2"))(
        symbol, function, version, flags, status);
}
