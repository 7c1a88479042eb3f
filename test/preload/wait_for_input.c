/* Allocates like the others, says so, and goes on when told to by a line of input. */
#include <cuda_runtime_api.h>

#include "case.h"

int main(void)
{
    void *kept, *freed;
    OK(cudaMalloc(&kept, 1000));
    OK(cudaMalloc(&freed, 30 * MIB));
    OK(cudaFree(freed));
    printf("ready\n");
    fflush(stdout);
    getchar();
    SAY(cudaFree(kept));
    return 0;
}
