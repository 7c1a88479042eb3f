/* Which function each version of a name is, by dlsym and by cuGetProcAddress in both signatures,
 * with and without a status, again and again: the names of what was found, not its addresses. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>

#include "case.h"

#define TIMES 3 /* the second time is no recursion */

static const char *const names[] = {"cuInit",
                                    "cuMemAlloc",
                                    "cuMemFree",
                                    "cuMemGetInfo",
                                    "cuMemAllocPitch",
                                    "cuMemAllocAsync",
                                    "cuCtxCreate",
                                    "cuStreamBeginCapture",
                                    "cuGraphAddNode",
                                    "cuGraphInstantiate",
                                    "cuMemcpyDtoH",
                                    "cuMemcpyHtoDAsync",
                                    "cuEventDestroy",
                                    "cuGetProcAddress",
                                    "cuLaunchKernel",
                                    "cuLaunchHostFunc",
                                    "cuNoSuchFunction",
                                    "cuda",
                                    ""};
static const int versions[] = {0,     2000,  3020,  4000,  9000,  11030,
                               11040, 12000, 12030, 13000, 14000, 99999};

static const char *name_of(void *address)
{
    Dl_info found;
    if (!address)
        return "none";
    return dladdr(address, &found) && found.dli_sname ? found.dli_sname : "nameless";
}

static void ask(void *cuda, const char *name, int version, cuuint64_t flags)
{
    __typeof__(cuGetProcAddress) *four = (__typeof__(four))dlsym(cuda, "cuGetProcAddress");
    __typeof__(cuGetProcAddress_v2) *five = (__typeof__(five))dlsym(cuda, "cuGetProcAddress_v2");
    void *found[3] = {NULL, NULL, NULL};
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    int result[] = {(int)four(name, &found[0], version, flags),
                    (int)five(name, &found[1], version, flags, NULL),
                    (int)five(name, &found[2], version, flags, &status)};
    CHECK(found[1] == found[2] && result[1] == result[2]);
    printf("%s %d %d: %d %s, %d %s, status %d\n", name, version, (int)flags, result[0],
           name_of(found[0]), result[1], name_of(found[1]), (int)status);
}

int main(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda);
    for (int time = 0; time < TIMES; time++)
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            printf("%s: %s\n", names[n], name_of(dlsym(cuda, names[n])));
            for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
                for (cuuint64_t flags = 0; flags <= 2; flags++)
                    ask(cuda, names[n], versions[v], flags);
        }
    return 0;
}
