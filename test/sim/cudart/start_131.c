/*
 * The start of cudart 13.1 to 13.5: dlsym of cuDriverGetVersion and a call of it come first. They
 * ask for no name that is newer than the driver.
 */
#include "start_13.h"

#include <dlfcn.h>
#include <string.h>

#define INSUFFICIENT_DRIVER ((CUresult)cudaErrorInsufficientDriver)

static CUresult driver_version(void *library, int *version)
{
    __typeof__(cuDriverGetVersion) *get;
    void *address = library ? dlsym(library, "cuDriverGetVersion") : NULL;
    memcpy(&get, &address, sizeof(get));
    return get && get(version) == CUDA_SUCCESS ? CUDA_SUCCESS : INSUFFICIENT_DRIVER;
}

CUresult runtime_start(struct runtime_start *start)
{
    start->version = 13010;
    int driver = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult result = driver_version(library, &driver);
    if (result)
        return result;
    return start_13(start, library, driver < start->version ? driver : start->version);
}
