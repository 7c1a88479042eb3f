/* Works on the host program's memory, by a function that the loader has bound. */
#include <cuda.h>
#include <stdlib.h>

int work(CUdeviceptr p, size_t n, CUstream stream, int value);
int work(CUdeviceptr p, size_t n, CUstream stream, int value)
{
    return cuMemsetD8Async(p, (unsigned char)value, n, stream);
}

/* Registers the function, where the program says where: without any look-up. */
__attribute__((constructor)) static void loaded(void)
{
    const char *at = getenv("UNSEEN_WORK_AT");
    if (at)
        *(void **)strtoull(at, NULL, 16) = (void *)work;
}
