/* Works on the host program's memory, by a function that the loader has bound. */
#include <cuda.h>

int work(CUdeviceptr p, size_t n, CUstream stream, int value);
int work(CUdeviceptr p, size_t n, CUstream stream, int value)
{
    return cuMemsetD8Async(p, (unsigned char)value, n, stream);
}
