/* Exported: how the program finds and begins CUDA. */
#include "interpose/resolve/lookup.h"
#include "interpose/process/process.h"
#include "interpose/resolve/real_driver.h"

CUresult cuInit(unsigned int flags)
{
    CUresult result = real()->cuInit(flags);
    if (result == CUDA_SUCCESS)
        process_start();
    return result;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return lookup_substitute(real()->cuGetProcAddress(symbol, function, version, flags), function);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    return lookup_substitute(real()->cuGetProcAddress_v2(symbol, function, version, flags, status),
                             function);
}
