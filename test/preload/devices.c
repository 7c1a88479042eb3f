/* Three devices: memory of each is freed while another is current, and by a thread that has no
 * context. */
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "case.h"

static void *blocks[3][10];

static void *free_second_half(void *unused)
{
    for (int device = 0; device < 3; device++)
        for (int i = 5; i < 10; i++)
            OK(cudaFree(blocks[device][i]));
    return unused;
}

int main(void)
{
    pthread_t thread;
    for (int device = 0; device < 3; device++) {
        OK(cudaSetDevice(device));
        for (int i = 0; i < 10 - device; i++) {
            struct cudaPointerAttributes is;
            OK(cudaMalloc(&blocks[device][i], 3 * MIB));
            OK(cudaPointerGetAttributes(&is, blocks[device][i]));
            CHECK(is.device == device);
        }
    }
    for (int device = 0; device < 3; device++) {
        OK(cudaSetDevice((device + 1) % 3));
        for (int i = 0; i < 5; i++)
            OK(cudaFree(blocks[device][i]));
    }
    OK(pthread_create(&thread, NULL, free_second_half, NULL));
    OK(pthread_join(thread, NULL));
    OK(cudaSetDevice(2));
    void *last;
    SAY(cudaMalloc(&last, 3 * MIB));
    SAY(cudaGetLastError());
    return 0;
}
