// Handles that other processes can have: what they cost to make, to export, import and map, also while a kernel works on the memory;
// and what the driver says of mapped memory and of cudaMalloc's.
#include "facts.cuh"
#include <unistd.h>

static const size_t CHUNK = 16 << 20;
static CUmemAllocationProp prop;
static CUmemAccessDesc own;

static double us_of(const std::function<void()> &call)
{
    auto begin = std::chrono::steady_clock::now();
    call();
    return us_since(begin);
}

static void price(size_t bytes, int exportable, int rdma)
{
    std::vector<CUmemGenericAllocationHandle> handle(16);
    prop.requestedHandleTypes = exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    prop.allocFlags.gpuDirectRDMACapable = (unsigned char)rdma;
    std::vector<double> create, release;
    for (int round = 0; round < 5; round++) {
        create.push_back(us_of([&] { for (auto &h : handle) MUST(cuMemCreate(&h, bytes, &prop, 0)); }) / 16);
        release.push_back(us_of([&] { for (auto &h : handle) MUST(cuMemRelease(h)); }) / 16);
    }
    fact("ipc", "16 handles of %zu MiB%s%s, us each: create %.1f, release %.1f", bytes >> 20, exportable ? ", exportable" : "",
         rdma ? ", RDMA" : "", median(create), median(release));
}

__global__ static void put(int *to, int value, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        to[i] = value;
}

static void imported_in_use()
{
    CUmemGenericAllocationHandle handle, other;
    CUdeviceptr range;
    u64 *times;
    int fd = -1, seen[2] = {0, 0};
    size_t n = CHUNK / sizeof(int);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    MUST(cudaMallocManaged(&times, 4096));
    MUST(cuMemAddressReserve(&range, 2 * CHUNK, 0, 0, 0));
    MUST(cuMemCreate(&handle, CHUNK, &prop, 0));
    MUST(cuMemMap(range, CHUNK, 0, handle, 0));
    MUST(cuMemSetAccess(range, CHUNK, &own, 1));
    put<<<256, 256>>>((int *)range, 1, n);
    MUST(cudaDeviceSynchronize());
    launch(nullptr, 20 * MS, times);
    put<<<256, 256>>>((int *)range, 7, n);
    double give = us_of([&] { MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)); });
    double take = us_of([&] {
        MUST(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    });
    close(fd);
    double map = us_of([&] { MUST(cuMemMap(range + CHUNK, CHUNK, 0, other, 0)); });
    double allow = us_of([&] { MUST(cuMemSetAccess(range + CHUNK, CHUNK, &own, 1)); });
    double rest = us_of([&] { MUST(cudaDeviceSynchronize()); });
    MUST(cuMemcpy((CUdeviceptr)seen, range + CHUNK, sizeof seen));
    fact("ipc", "under 20 ms of work: export %.0f us, import %.0f, map %.0f, access %.0f; all done %.0f us later; read there: %d %d",
         give, take, map, allow, rest, seen[0], seen[1]);
    failures += seen[0] != 7 || seen[1] != 7;
    CUmemAllocationProp said = {};
    MUST(cuMemGetAllocationPropertiesFromHandle(&said, other));
    fact("ipc", "an imported handle lies on device %d", said.location.id);
    MUST(cuMemUnmap(range, 2 * CHUNK));
    MUST(cuMemRelease(handle));
    MUST(cuMemRelease(other));
    MUST(cuMemAddressFree(range, 2 * CHUNK));
}

static void attributes_of(const char *name, CUdeviceptr block, CUdeviceptr at)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
    int range = (int)cuMemGetAddressRange(&base, &bytes, at), retained = (int)cuMemRetainAllocationHandle(&handle, (void *)at);
    fact("ipc", "%s: cuMemGetAddressRange %d: base %+lld, %zu bytes; cuMemRetainAllocationHandle %d", name, range,
         (long long)(base - block), bytes, retained);
    if (!retained)
        MUST(cuMemRelease(handle));
    struct {
        const char *name;
        CUpointer_attribute attribute;
    } asked[] = {{"CONTEXT", CU_POINTER_ATTRIBUTE_CONTEXT}, {"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
                 {"BUFFER_ID", CU_POINTER_ATTRIBUTE_BUFFER_ID}, {"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
                 {"IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
                 {"RANGE_START_ADDR", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR}, {"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
                 {"MAPPED", CU_POINTER_ATTRIBUTE_MAPPED}, {"ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
                 {"IS_GPU_DIRECT_RDMA_CAPABLE", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
                 {"ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS}, {"MEMPOOL_HANDLE", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE},
                 {"MEMORY_BLOCK_ID", CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID}};
    for (auto &one : asked) {
        unsigned char data[17];
        for (auto &byte : data)
            byte = 0xee;
        int code = (int)cuPointerGetAttribute(data, one.attribute, at), width = 0;
        long long value = 0;
        while (width < 16 && data[width] != 0xee)
            width++;
        for (int i = 0; i < width && i < 8; i++)
            value |= (long long)data[i] << 8 * i;
        if (one.attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            value -= (long long)block;
        fact("ipc", "%s: %s: code %d, %d bytes written: %lld", name, one.name, code, width, value);
    }
}

void facts_of_ipc()
{
    CUdevice device;
    CUdeviceptr range, small, large;
    CUmemGenericAllocationHandle handle[2];
    MUST(cuCtxGetDevice(&device));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = own.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    own.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (size_t megabytes : {2, 16})
        for (int kind = 0; kind < 4; kind++)
            price(megabytes << 20, kind & 1, kind >> 1);
    imported_in_use();
    MUST(cuMemAlloc(&small, 1000));
    MUST(cuMemAlloc(&large, 21000100));
    attributes_of("cuMemAlloc of 1000", small, small);
    attributes_of("cuMemAlloc of 21000100, inside", large, large + (17 << 20));
    MUST(cuMemAddressReserve(&range, 4 * CHUNK, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        MUST(cuMemCreate(&handle[i], CHUNK, &prop, 0));
        MUST(cuMemMap(range + (i + 1) * CHUNK, CHUNK, 0, handle[i], 0));
    }
    MUST(cuMemSetAccess(range + CHUNK, 2 * CHUNK, &own, 1));
    attributes_of("second of two mapped handles, inside a range", range, range + 2 * CHUNK + 4096);
    CUipcMemHandle ipc;
    fact("ipc", "cuIpcGetMemHandle of it: code %d", (int)cuIpcGetMemHandle(&ipc, range + CHUNK));
    MUST(cuMemUnmap(range + CHUNK, 2 * CHUNK));
    for (auto h : handle)
        MUST(cuMemRelease(h));
    MUST(cuMemAddressFree(range, 4 * CHUNK));
    MUST(cuMemFree(small));
    MUST(cuMemFree(large));
}
