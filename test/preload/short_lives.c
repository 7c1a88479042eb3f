/* Processes that use CUDA for a moment, one after the other. Argument: how many. */
#include <cuda_runtime_api.h>
#include <sys/wait.h>

#include "case.h"

static _Noreturn void live(void)
{
    void *block;
    OK(cudaMalloc(&block, 1000));
    OK(cudaFree(block));
    exit(0);
}

int main(int count, char **argument)
{
    int status;
    CHECK(count == 2);
    for (int i = 0; i < atoi(argument[1]); i++) {
        pid_t child = fork();
        if (child == 0)
            live();
        OK(waitpid(child, &status, 0) != child || status);
    }
    return 0;
}
