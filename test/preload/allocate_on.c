/* Allocates, checks and frees until its input ends; prints how far it came only if something was
 * wrong. */
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <string.h>

#include "case.h"

int main(void)
{
    void *block[32] = {0};
    unsigned char pattern[32], back[64], byte;
    unsigned random = 1;
    OK(cudaMalloc(&block[0], 1000));
    OK(cudaFree(block[0]));
    block[0] = NULL;
    printf("ready\n");
    fflush(stdout);
    fcntl(0, F_SETFL, O_NONBLOCK);
    for (unsigned round = 1; read(0, &byte, 1) != 0; round++) {
        random = random * 1664525 + 1013904223;
        unsigned i = random >> 16 & 31;
        if (block[i]) {
            OK(cudaMemcpy(back, block[i], sizeof back, cudaMemcpyDeviceToHost));
            for (size_t k = 0; k < sizeof back; k++)
                CHECK(back[k] == pattern[i]);
            OK(cudaFree(block[i]));
            block[i] = NULL;
        } else {
            OK(cudaMalloc(&block[i], (random >> 8) % 70000 + 64));
            pattern[i] = (unsigned char)round;
            OK(cudaMemset(block[i], pattern[i], 64));
        }
    }
    for (int i = 0; i < 32; i++)
        if (block[i])
            OK(cudaFree(block[i]));
    SAY(cudaGetLastError());
    return 0;
}
