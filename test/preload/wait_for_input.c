/* Allocates like the others, says so, and goes on when told to by a line of input. With an argument
 * a stream is captured meanwhile. */
#include <cuda_runtime_api.h>

#include "case.h"

int main(int argc, char **argv)
{
    void *kept, *freed;
    cudaStream_t stream;
    (void)argv;
    OK(cudaMalloc(&kept, 1000));
    OK(cudaMalloc(&freed, 30 * MIB));
    OK(cudaFree(freed));
    if (argc > 1) {
        OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    }
    printf("ready\n");
    fflush(stdout);
    getchar();
    SAY(cudaFree(kept));
    return 0;
}
