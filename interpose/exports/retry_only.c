/* Exported: functions that allocate as a side effect, and so may fail because our cache holds the
 * memory. */
#include "interpose/memory/refuse.h"
#include "interpose/memory/retry.h"
#include "interpose/process/gate.h"
#include "interpose/resolve/real_driver.h"

/* A function that only needs the second try. */
#define RETRY(name, parameters, arguments)                                                         \
    CUresult name parameters                                                                       \
    {                                                                                              \
        CUresult result;                                                                           \
        RETRIED(result, real()->name arguments);                                                   \
        return result;                                                                             \
    }

RETRY(cuModuleLoad, (CUmodule * module, const char *path), (module, path))
RETRY(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
RETRY(cuModuleLoadDataEx,
      (CUmodule * module, const void *image, unsigned int n, CUjit_option *options, void **values),
      (module, image, n, options, values))
RETRY(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image))
RETRY(cuLibraryLoadData,
      (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values,
       unsigned int jit_n, CUlibraryOption *options, void **values, unsigned int n),
      (library, code, jit, jit_values, jit_n, options, values, n))
RETRY(cuLibraryLoadFromFile,
      (CUlibrary * library, const char *path, CUjit_option *jit, void **jit_values,
       unsigned int jit_n, CUlibraryOption *options, void **values, unsigned int n),
      (library, path, jit, jit_values, jit_n, options, values, n))
RETRY(cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags))
RETRY(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority),
      (stream, flags, priority))
RETRY(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *properties), (pool, properties))
RETRY(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),
      (function, module, name))
RETRY(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name),
      (kernel, library, name))
RETRY(cuLibraryGetModule, (CUmodule * module, CUlibrary library), (module, library))
RETRY(cuKernelGetFunction, (CUfunction * function, CUkernel kernel), (function, kernel))
RETRY(cuFuncLoad, (CUfunction function), (function))
RETRY(cuModuleGetGlobal_v2,
      (CUdeviceptr * pointer, size_t *bytes, CUmodule module, const char *name),
      (pointer, bytes, module, name))
RETRY(cuLibraryGetGlobal,
      (CUdeviceptr * pointer, size_t *bytes, CUlibrary library, const char *name),
      (pointer, bytes, library, name))
RETRY(cuLibraryGetManaged,
      (CUdeviceptr * pointer, size_t *bytes, CUlibrary library, const char *name),
      (pointer, bytes, library, name))
RETRY(cuEventCreate, (CUevent * event, unsigned int flags), (event, flags))
/* It may name an address. */
CUresult cuTexObjectCreate(CUtexObject *texture, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *shape, const CUDA_RESOURCE_VIEW_DESC *view)
{
    PASS_GATE;
    CUresult result;
    RETRIED(result, real()->cuTexObjectCreate(texture, resource, shape, view));
    return result;
}
RETRY(cuExternalMemoryGetMappedBuffer,
      (CUdeviceptr * pointer, CUexternalMemory memory,
       const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *buffer),
      (pointer, memory, buffer))
RETRY(cuExternalMemoryGetMappedMipmappedArray,
      (CUmipmappedArray * array, CUexternalMemory memory,
       const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *shape),
      (array, memory, shape))
RETRY(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value))
RETRY(cuMemAddressReserve,
      (CUdeviceptr * pointer, size_t size, size_t alignment, CUdeviceptr wanted,
       unsigned long long flags),
      (pointer, size, alignment, wanted, flags))
RETRY(cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags), (peer, flags))
RETRY(cuMulticastCreate,
      (CUmemGenericAllocationHandle * handle, const CUmulticastObjectProp *properties),
      (handle, properties))
