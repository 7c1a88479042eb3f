/* An ordinary program through the driver API, linked to libcuda or (-DBY_DLOPEN) with dlopen and
 * dlsym. Exit code 7. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef BY_DLOPEN
#define F(name) ((__typeof__(&name))find(#name))
#define STRING(x) #x
#define NAME(x) STRING(x)
static void *find(const char *name)
{
    static void *cuda;
    if (!cuda)
        cuda = dlopen("libcuda.so.1", RTLD_NOW);
    void *f = cuda ? dlsym(cuda, name) : NULL;
    if (!f) {
        printf("no %s\n", name);
        exit(1);
    }
    return f;
}
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemGetInfo
#undef cuMemcpyDtoH
#undef cuMemsetD8
#undef cuMemAllocPitch
#define cuMemAlloc F(cuMemAlloc_v2)
#define cuMemFree F(cuMemFree_v2)
#define cuMemcpyDtoH F(cuMemcpyDtoH_v2)
#define cuMemsetD8 F(cuMemsetD8_v2)
#define cuMemAllocPitch F(cuMemAllocPitch_v2)
#define cuInit F(cuInit)
#define cuDevicePrimaryCtxRetain F(cuDevicePrimaryCtxRetain)
#define cuCtxSetCurrent F(cuCtxSetCurrent)
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
#endif

int main(void)
{
    CUcontext context;
    CUdeviceptr p[16] = {0}, q;
    uint64_t seed = 1, requested = 0, bad = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    for (int i = 0; i < 2000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = (seed >> 33) % 16, n = 1 + (seed >> 40) % 5000000;
        unsigned char byte = 0;
        if (p[slot]) {
            bad += cuMemcpyDtoH(&byte, p[slot], 1) != 0 || byte != slot + 1;
            bad += cuMemFree(p[slot]) != 0;
        }
        bad += cuMemAlloc(&p[slot], n) != 0;
        requested += n;
        bad += cuMemsetD8(p[slot], (unsigned char)(slot + 1), n) != 0;
    }
    printf("mallocs 2000 requested %llu bad %llu\n", (unsigned long long)requested,
           (unsigned long long)bad);
    printf("twice %d", cuMemFree(p[0]));
    printf(" %d interior %d null %d zero %d huge %d\n", cuMemFree(p[0]), cuMemFree(p[1] + 512),
           cuMemFree(0), cuMemAlloc(&q, 0), cuMemAlloc(&q, (size_t)-1));
    printf("null out %d\n", cuMemAlloc(NULL, 100));
    /* Which pitch does this driver give? All element sizes, widths around every boundary. */
    size_t odd = 0, pitch;
    for (unsigned element = 4; element <= 16; element *= 2)
        for (size_t width = 1; width < 3000000; width += width < 2100 ? 1 : width / 7)
            if (cuMemAllocPitch(&q, &pitch, width, 3, element) == 0) {
                odd += pitch != (width + 511) / 512 * 512;
                cuMemFree(q);
            }
    printf("pitches that are not the width rounded up to 512: %zu\n", odd);
    return 7;
}
