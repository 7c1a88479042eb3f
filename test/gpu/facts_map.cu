// Mapped memory: what the calls cost, for one handle and for many; whether any of them waits for work, also on memory that a kernel
// is using at another address; and whether what is written at one address is read at the other by the next kernel.
#include "facts.cuh"
#include <vector>

static const size_t CHUNK = 16 << 20;
static CUmemAllocationProp prop;
static CUmemAccessDesc access_of_all;

__global__ static void put(int *to, int value, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        to[i] = value;
}

__global__ static void count_others(const int *from, int value, size_t n, unsigned *others)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        if (from[i] != value)
            atomicAdd(others, 1u);
}

static double us_of(const std::function<void()> &call)
{
    auto begin = std::chrono::steady_clock::now();
    call();
    return us_since(begin);
}

// n handles of `bytes`, side by side, with one call for access or one for each.
static void price(size_t bytes, size_t n)
{
    CUdeviceptr range;
    std::vector<CUmemGenericAllocationHandle> handle(n);
    MUST(cuMemAddressReserve(&range, 2 * n * bytes, 0, 0, 0));
    double create = us_of([&] { for (auto &h : handle) MUST(cuMemCreate(&h, bytes, &prop, 0)); });
    double map = us_of([&] { for (size_t i = 0; i < n; i++) MUST(cuMemMap(range + i * bytes, bytes, 0, handle[i], 0)); });
    double together = us_of([&] { MUST(cuMemSetAccess(range, n * bytes, &access_of_all, 1)); });
    CUdeviceptr twin = range + n * bytes;
    double again = us_of([&] { for (size_t i = 0; i < n; i++) MUST(cuMemMap(twin + i * bytes, bytes, 0, handle[i], 0)); });
    double each = us_of([&] { for (size_t i = 0; i < n; i++) MUST(cuMemSetAccess(twin + i * bytes, bytes, &access_of_all, 1)); });
    double unmap = us_of([&] { MUST(cuMemUnmap(range, n * bytes)); });
    double unmap_each = us_of([&] { for (size_t i = 0; i < n; i++) MUST(cuMemUnmap(twin + i * bytes, bytes)); });
    double release = us_of([&] { for (auto &h : handle) MUST(cuMemRelease(h)); });
    MUST(cuMemAddressFree(range, 2 * n * bytes));
    fact("map", "%zu handles of %zu MiB, us each: create %.1f, map %.1f, map a second time %.1f, access in one call %.1f, "
         "in a call each %.1f, unmap in one call %.1f, in a call each %.1f, release %.1f",
         n, bytes >> 20, create / n, map / n, again / n, together / n, each / n, unmap / n, unmap_each / n, release / n);
}

// A handle at two addresses, while a kernel works on the first.
static void under_work()
{
    CUdeviceptr range;
    CUmemGenericAllocationHandle handle;
    u64 *times;
    unsigned *others, wrong = 0;
    size_t n = CHUNK / sizeof(int);
    MUST(cudaMallocManaged(&times, 4096));
    MUST(cudaMallocManaged(&others, 4));
    MUST(cuMemAddressReserve(&range, 4 * CHUNK, 0, 0, 0));
    MUST(cuMemCreate(&handle, CHUNK, &prop, 0));
    MUST(cuMemMap(range, CHUNK, 0, handle, 0));
    MUST(cuMemSetAccess(range, CHUNK, &access_of_all, 1));
    MUST(cudaDeviceSynchronize());
    launch(nullptr, 20 * MS, times);
    put<<<256, 256>>>((int *)range, 7, n);
    double map = us_of([&] { MUST(cuMemMap(range + CHUNK, CHUNK, 0, handle, 0)); });
    double allow = us_of([&] { MUST(cuMemSetAccess(range + CHUNK, CHUNK, &access_of_all, 1)); });
    count_others<<<256, 256>>>((int *)(range + CHUNK), 7, n, others);
    double rest = us_of([&] { MUST(cudaDeviceSynchronize()); });
    fact("map", "20 ms of work before: a handle in use mapped elsewhere after %.0f us, access after %.0f us, all done %.0f us later",
         map, allow, rest);
    *others = 0;
    for (int i = 1; i <= 1000; i++) {
        size_t to = i % 2, from = !to;
        put<<<256, 256>>>((int *)(range + to * CHUNK), i, n);
        count_others<<<256, 256>>>((int *)(range + from * CHUNK), i, n, others);
    }
    MUST(cudaDeviceSynchronize());
    wrong = *others;
    fact("map", "written at one address, read at the other by the next kernel: %u wrong of %zu", wrong, 1000 * n);
    launch(nullptr, 20 * MS, times);
    double unmap = us_of([&] { MUST(cuMemUnmap(range + CHUNK, CHUNK)); });
    rest = us_of([&] { MUST(cudaDeviceSynchronize()); });
    fact("map", "20 ms of other work: unmap after %.0f us, all done %.0f us later", unmap, rest);
    MUST(cuMemUnmap(range, CHUNK));
    MUST(cuMemRelease(handle));
    MUST(cuMemAddressFree(range, 4 * CHUNK));
}

// What a start may cost: addresses for many times the device's memory, and a look at what the process has mapped.
static void at_start(CUdevice device)
{
    size_t memory, read = 0;
    MUST(cuDeviceTotalMem(&memory, device));
    for (size_t times : {1, 2, 8}) {
        CUdeviceptr range;
        size_t bytes = memory / CHUNK * CHUNK * times;
        double reserve = us_of([&] { MUST(cuMemAddressReserve(&range, bytes, 0, 0, 0)); });
        double release = us_of([&] { MUST(cuMemAddressFree(range, bytes)); });
        fact("map", "addresses for %zu times the device's memory: reserved in %.1f us, given back in %.1f us", times, reserve, release);
    }
    double look = us_of([&] {
        char buffer[4096];
        FILE *maps = fopen("/proc/self/maps", "r");
        for (size_t n; maps && (n = fread(buffer, 1, sizeof buffer, maps)) > 0;)
            read += n;
        if (maps)
            fclose(maps);
    });
    fact("map", "/proc/self/maps: %zu bytes, read in %.1f us", read, look);
}

void facts_of_maps()
{
    CUdevice device;
    MUST(cuCtxGetDevice(&device));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    access_of_all.location = prop.location;
    access_of_all.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (size_t megabytes : {2, 16, 64, 256})
        for (size_t n : {1, 8, 32})
            price(megabytes << 20, n);
    under_work();
    at_start(device);
}
