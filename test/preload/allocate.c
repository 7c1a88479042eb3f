/* An ordinary program of the runtime: 6 requests, 5 frees. Also built as a plugin. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "case.h"

int run(void);
int run(void)
{
    static const size_t sizes[] = {1, 1000, 1 << 20, 3 << 20, 30 << 20};
    unsigned char there[1000], back[1000];
    void *block[5], *again;
    memset(there, 42, sizeof there);
    OK(cudaFree(NULL)); /* makes the context; no free */
    for (int i = 0; i < 5; i++)
        OK(cudaMalloc(&block[i], sizes[i]));
    OK(cudaMemcpy(block[1], there, sizeof there, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(back, block[1], sizeof back, cudaMemcpyDeviceToHost));
    SAY(memcmp(there, back, sizeof back));
    for (int i = 0; i < 5; i++)
        OK(cudaFree(block[i]));
    SAY(cudaMalloc(&again, 1000));
    SAY(cudaGetLastError());
    return 0;
}

int main(void)
{
    return run();
}
