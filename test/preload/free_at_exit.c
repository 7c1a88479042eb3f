/* Frees and requests in exit handlers made before and after CUDA began, and in a destructor: of the
 * runtime, or (with an argument) of the driver. */
#include <cuda_runtime_api.h>

#include "driver_case.h"

static void *block[3], *late;
static int by_driver;

static int release(void *pointer)
{
    return by_driver ? (int)cuMemFree((CUdeviceptr)pointer) : (int)cudaFree(pointer);
}

static int request(void **pointer, size_t bytes)
{
    return by_driver ? (int)cuMemAlloc((CUdeviceptr *)pointer, bytes)
                     : (int)cudaMalloc(pointer, bytes);
}

static void made_after(void)
{
    SAY(release(block[0]));
    SAY(request(&late, 1000));
    SAY(release(late));
}

static void made_before(void)
{
    SAY(release(block[1]));
    SAY(release(block[1]));
    SAY(request(&late, 3 * MIB));
    SAY(cudaMemset(late, 1, 3 * MIB));
    SAY(release(late));
}

__attribute__((destructor)) static void at_last(void)
{
    SAY(release(block[2]));
    SAY(release(&late));
    SAY(cudaGetLastError());
}

int main(int count, char **argument)
{
    (void)argument;
    by_driver = count > 1;
    atexit(made_before);
    OK(cudaFree(NULL));
    for (int i = 0; i < 3; i++)
        OK(request(&block[i], 1000));
    atexit(made_after);
    return 0;
}
