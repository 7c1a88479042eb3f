/* Frees and requests in exit handlers made before and after CUDA began, and in a destructor. */
#include <cuda_runtime_api.h>

#include "case.h"

static void *block[3], *late;

static void made_after(void)
{
    SAY(cudaFree(block[0]));
    SAY(cudaMalloc(&late, 1000));
    SAY(cudaFree(late));
}

static void made_before(void)
{
    SAY(cudaFree(block[1]));
    SAY(cudaFree(block[1]));
    SAY(cudaMalloc(&late, 3 * MIB));
    SAY(cudaMemset(late, 1, 3 * MIB));
    SAY(cudaFree(late));
}

__attribute__((destructor)) static void at_last(void)
{
    SAY(cudaFree(block[2]));
    SAY(cudaFree(&late));
    SAY(cudaGetLastError());
}

int main(void)
{
    atexit(made_before);
    for (int i = 0; i < 3; i++)
        OK(cudaMalloc(&block[i], 1000));
    atexit(made_after);
    return 0;
}
