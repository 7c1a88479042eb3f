/*
 * Modules and libraries load, so that programs start, but hold no function.
 */
#include "call.h"

static char module_handle;

static CUresult module_load(CUmodule *module, const void *image)
{
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    *module = (CUmodule)&module_handle;
    return CUDA_SUCCESS;
}

CUresult do_cuModuleLoad(CUmodule *module, const char *name)
{
    return module_load(module, name);
}

CUresult do_cuModuleLoadData(CUmodule *module, const void *image)
{
    return module_load(module, image);
}

CUresult do_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                               CUjit_option *options, void **values)
{
    (void)count, (void)options, (void)values;
    return module_load(module, image);
}

CUresult do_cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return module_load(module, image);
}

CUresult do_cuModuleUnload(CUmodule module)
{
    return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)function, (void)module, (void)name;
    return CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                 const char *name)
{
    (void)address, (void)bytes, (void)module, (void)name;
    return CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit,
                              void **jit_values, unsigned jit_count, CUlibraryOption *options,
                              void **values, unsigned count)
{
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return module_load((CUmodule *)library, image);
}

CUresult do_cuLibraryUnload(CUlibrary library)
{
    return library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    (void)kernel, (void)library, (void)name;
    return CUDA_ERROR_NOT_FOUND;
}
