/* Allocates like the others, says so, and goes on when told to by a line of input. With the argument
 * `idle` it waits for a line before that too; with another one a stream is captured meanwhile. */
#include <cuda_runtime_api.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "case.h"

int main(int argc, char **argv)
{
    void *kept, *freed;
    cudaStream_t stream;
    int idle = argc > 1 && strcmp(argv[1], "idle") == 0;
    if (idle) {
        printf("idle\n");
        fflush(stdout);
        pid_t child = argc > 2 ? fork() : 0;
        if (child)
            return waitpid(child, NULL, 0) != child;
        getchar();
    }
    OK(cudaMalloc(&kept, 1000));
    OK(cudaMalloc(&freed, 30 * MIB));
    OK(cudaFree(freed));
    if (argc > 1 && !idle) {
        OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    }
    printf("ready\n");
    fflush(stdout);
    getchar();
    SAY(cudaFree(kept));
    return 0;
}
