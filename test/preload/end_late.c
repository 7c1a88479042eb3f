/* Ends by 5, with memory that early_library.c frees at its end; or, after the word `own`, with memory of
 * its own that a destructor or, by quick_exit, a handler frees. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "case.h"

void keep(void);

static void *block;

static void release(void)
{
    OK(cudaFree(block));
}

int main(int count, char **argument)
{
    keep();
    if (count > 1 && strcmp(argument[1], "quick_exit") == 0) {
        OK(cudaMalloc(&block, MIB));
        OK(at_quick_exit(release));
        quick_exit(5);
    }
    return 5;
}
