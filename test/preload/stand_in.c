/* Stands in for libcuda as Nsight Compute does: a dlopen of it is answered with this library, whose
 * functions go on to libcuda's, and whose cuGetProcAddress hands those out. It finds its own file by
 * the address of its dlopen. One function is newer than this library. */
#include <dlfcn.h>
#include <string.h>

#include "call.h"
#include "case.h"
#include "exported.h"

static void *libcuda;

extern __typeof__(cuMemAllocAsync) cuMemAllocAsync __attribute__((visibility("hidden")));

void *dlopen(const char *path, int mode)
{
    Dl_info here;
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    CHECK(next && dladdr((void *)dlopen, &here));
    if (!libcuda)
        libcuda = next("libcuda.so.1", RTLD_NOW);
    return next(path && strcmp(path, "libcuda.so.1") == 0 ? here.dli_fname : path, mode);
}

/* Not those of who stands before us: what a library that stands in asks for are no program's calls.
 */
static void *behind(const char *name)
{
    Dl_info owner;
    void *function = dlsym(libcuda, name);
    CHECK(function && dladdr(function, &owner) && strstr(owner.dli_fname, "/libcuda.so"));
    return function;
}

__attribute__((constructor)) static void loaded(void)
{
    CHECK(dlopen("libcuda.so.1", RTLD_NOW) && libcuda && behind("cuInit"));
}

#define CALL(symbol, parameters, arguments)                                                        \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        return ((__typeof__(&symbol))behind(#symbol))arguments;                                    \
    }
#define FN(symbol, implementation, since, parameters, arguments) CALL(symbol, parameters, arguments)
#define EARLY FN
#define TWIN(symbol, suffix, implementation, since, parameters, arguments)                         \
    CALL(symbol, parameters, arguments)                                                            \
    CALL(symbol##suffix, parameters, arguments)
#include "calls_device.def"
#include "calls_memory.def"
#include "calls_stream.def"
