/* Takes 10 MiB pieces until there is no more; frees all; does it again. */
#include <cuda_runtime_api.h>

#include "case.h"

int main(void)
{
    static void *piece[1000];
    for (int round = 0; round < 3; round++) {
        int count = 0;
        while (cudaMalloc(&piece[count], 10 * MIB) == cudaSuccess)
            count++;
        SAY(count);
        SAY(piece[count] == NULL);
        SAY(cudaGetLastError());
        while (count)
            OK(cudaFree(piece[--count]));
    }
    return 0;
}
