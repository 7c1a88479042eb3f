/* The program has taken all keys of thread-local values before it uses CUDA, and keeps its own. */
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdint.h>

#include "case.h"

static pthread_key_t key[4096];
static unsigned keys;

static void *work(void *unused)
{
    void *block;
    int changed = 0;
    for (uintptr_t i = 0; i < keys; i++)
        OK(pthread_setspecific(key[i], (void *)(i + 1)));
    for (size_t i = 1; i < 100; i++) {
        OK(cudaMalloc(&block, i * 10000));
        OK(cudaMemset(block, 1, 100));
        OK(cudaFree(block));
    }
    for (uintptr_t i = 0; i < keys; i++)
        changed += pthread_getspecific(key[i]) != (void *)(i + 1);
    SAY(changed);
    return unused;
}

int main(void)
{
    pthread_t thread;
    while (keys < 4096 && pthread_key_create(&key[keys], NULL) == 0)
        keys++;
    for (int i = 0; i < 3; i++) {
        OK(pthread_create(&thread, NULL, work, NULL));
        OK(pthread_join(thread, NULL));
    }
    return 0;
}
