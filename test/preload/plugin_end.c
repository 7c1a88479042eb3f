/* A plugin that uses CUDA and frees in its destructor: at dlclose, or at the program's end. */
#include <cuda_runtime_api.h>

#include "case.h"

int run(void);
static void *kept[3];

int run(void)
{
    for (int i = 0; i < 3; i++)
        SAY(cudaMalloc(&kept[i], 1000));
    SAY(cudaFree(kept[0]));
    return 0;
}

__attribute__((destructor)) static void end_of_plugin(void)
{
    SAY(cudaFree(kept[1]));
}
