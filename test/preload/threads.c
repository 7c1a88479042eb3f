/* Eight threads allocate, hand blocks to each other and free: 8 x 2000 requests, as many frees. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "case.h"

#define THREADS 8
#define ROUNDS 2000
#define SLOTS 64

static _Atomic(void *) slot[SLOTS];

static void *work(void *number)
{
    unsigned random = (unsigned)(size_t)number * 2654435761u + 1;
    for (int i = 0; i < ROUNDS; i++) {
        void *block;
        random = random * 1664525 + 1013904223;
        size_t bytes = random % 16 == 0 ? random % (4 * MIB) + 1 : random % 9000 + 8;
        OK(cudaMalloc(&block, bytes));
        OK(cudaMemset(block, (int)random, 8));
        block = atomic_exchange(&slot[random >> 8 & (SLOTS - 1)], block);
        if (block)
            OK(cudaFree(block));
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        OK(pthread_create(&thread[i], NULL, work, (void *)i));
    for (size_t i = 0; i < THREADS; i++)
        OK(pthread_join(thread[i], NULL));
    for (int i = 0; i < SLOTS; i++)
        if (slot[i])
            OK(cudaFree(slot[i]));
    SAY(cudaGetLastError());
    return 0;
}
