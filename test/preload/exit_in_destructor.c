/* A destructor that calls exit, with code 3: those that would come after it do not run. */
#include <cuda_runtime.h>

#include "case.h"

__attribute__((destructor)) static void again(void)
{
    exit(3);
}

int main(void)
{
    void *block;
    OK(cudaMalloc(&block, 1000));
    OK(cudaFree(block));
    return 0;
}
