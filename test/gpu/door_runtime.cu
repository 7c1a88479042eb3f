// An ordinary CUDA program through the runtime API, linked to cudart statically (nvcc's default) or shared: random sizes, a
// kernel that fills, a copy back that checks. Prints what it saw; exit code 7.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void fill(uint32_t *p, size_t n, uint32_t value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        p[i] = value + (uint32_t)i;
}

static void must(cudaError_t e, const char *what)
{
    if (e != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(e));
        exit(1);
    }
}

int main()
{
    uint64_t seed = 1, requested = 0, bad = 0;
    std::vector<uint32_t *> live(64, nullptr);
    std::vector<size_t> words(64, 0);
    std::vector<uint32_t> host;
    for (int i = 0; i < 4000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = (seed >> 33) % 64, n = 1 + (seed >> 40) % (i % 50 ? 20000 : 3000000);
        if (live[slot]) {
            host.resize(words[slot]);
            must(cudaMemcpy(host.data(), live[slot], 4 * words[slot], cudaMemcpyDeviceToHost), "copy");
            for (size_t k = 0; k < words[slot]; k += 997)
                bad += host[k] != (uint32_t)words[slot] + (uint32_t)k;
            must(cudaFree(live[slot]), "free");
        }
        must(cudaMalloc((void **)&live[slot], 4 * n), "malloc");
        words[slot] = n;
        requested += 4 * n;
        fill<<<64, 256>>>(live[slot], n, (uint32_t)n);
        must(cudaGetLastError(), "launch");
    }
    printf("mallocs 4000 requested %llu bad %llu\n", (unsigned long long)requested, (unsigned long long)bad);
    void *null = nullptr;
    uint32_t *p = live[0], *q = nullptr;
    printf("free twice: %d", cudaFree(p));
    printf(" %d", cudaFree(p));
    printf(" last %d", cudaGetLastError());
    printf(" last %d\n", cudaGetLastError());
    printf("interior: %d foreign: %d null: %d zero: %d", cudaFree(live[1] + 1), cudaFree((void *)0x1234), cudaFree(null),
           cudaMalloc((void **)&q, 0));
    printf(" %p huge: %d %d last %d\n", (void *)q, cudaMalloc((void **)&q, (size_t)-1), cudaMalloc((void **)&q, (size_t)-4096),
           cudaGetLastError());
    size_t pitch = 0;
    for (size_t width : {1, 511, 512, 513, 1000, 4096, 100000, 1 << 20}) {
        must(cudaMallocPitch((void **)&q, &pitch, width, 7), "pitch");
        printf("pitch %zu -> %zu\n", width, pitch);
        must(cudaMemset2D(q, pitch, 1, width, 7), "memset2d");
        must(cudaFree(q), "free pitch");
    }
    must(cudaDeviceSynchronize(), "sync");
    return 7;
}
