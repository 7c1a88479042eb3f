/* The same through the runtime, with the error that it keeps. */
#include <cuda_runtime_api.h>
#include <stdint.h>

#include "case.h"

#define TELL(expression)                                                                           \
    do {                                                                                           \
        SAY(expression);                                                                           \
        SAY(cudaPeekAtLastError());                                                                \
        SAY(cudaGetLastError());                                                                   \
        SAY(cudaGetLastError());                                                                   \
    } while (0)

int main(void)
{
    void *pointer = &pointer, *block;
    TELL(cudaFree(NULL));
    TELL(cudaMalloc(&pointer, 0));
    SAY(pointer == NULL);
    TELL(cudaMalloc(NULL, 100));
    TELL(cudaMalloc(NULL, 0));
    static const size_t sizes[] = {SIZE_MAX,         SIZE_MAX - 511,  SIZE_MAX - 2 * MIB,
                                   SIZE_MAX / 2 + 1, (size_t)1 << 62, (size_t)1 << 40};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pointer = &pointer;
        TELL(cudaMalloc(&pointer, sizes[i]));
        SAY(pointer == NULL);
    }
    OK(cudaMalloc(&block, 1000));
    TELL(cudaFree((char *)block + 1));
    TELL(cudaFree((char *)block + 512));
    TELL(cudaFree(&pointer));
    TELL(cudaFree(block));
    TELL(cudaFree(block));
    /* An error that is kept outlives what succeeds. */
    SAY(cudaFree(block));
    OK(cudaMalloc(&block, 1000));
    SAY(cudaPeekAtLastError());
    OK(cudaFree(block));
    SAY(cudaGetLastError());
    TELL(cudaFree(NULL));
    return 0;
}
