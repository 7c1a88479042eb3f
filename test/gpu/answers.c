/* Calls that are not right, or rare: what the driver answers natively is what it must answer in
 * front. */
#include <cuda.h>
#include <stdio.h>

static void say(const char *what, CUresult code)
{
    printf("%s: %d\n", what, (int)code);
}

/* A free in a capture is a node, which memory of cudaMalloc cannot have. */
static void capture_a_free(CUdeviceptr p, CUstream stream, CUstreamCaptureMode mode)
{
    CUgraph graph = NULL;
    say("begin capture", cuStreamBeginCapture(stream, mode));
    say("captured free", cuMemFreeAsync(p, stream));
    say("end capture", cuStreamEndCapture(stream, &graph));
    if (graph)
        say("destroy", cuGraphDestroy(graph));
    say("set it", cuMemsetD8(p, 1, 1000));
    say("wait", cuCtxSynchronize());
}

/* What is left where a pointer should be. */
static void ask_too_much(size_t width, size_t rows)
{
    CUdeviceptr pointer = 0x77;
    size_t pitch = 7;
    say("too much", cuMemAlloc(&pointer, width * rows));
    printf("leaves %llx\n", (unsigned long long)pointer);
    pointer = 0x77;
    say("too many rows", cuMemAllocPitch(&pointer, &pitch, width, rows, 4));
    printf("leaves %llx and %zu\n", (unsigned long long)pointer, pitch);
}

/* Memory that nobody has any more. */
static void ask_about_freed(size_t bytes)
{
    CUmemorytype type = 0;
    CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *data = &type;
    CUdeviceptr block, base = 0;
    size_t size = 0;
    CUmemGenericAllocationHandle handle;
    say("make", cuMemAlloc(&block, bytes));
    say("free", cuMemFree(block));
    say("attribute of freed",
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
    say("attributes of freed", cuPointerGetAttributes(1, &asked, &data, block));
    printf("type %d\n", (int)type);
    say("range of freed", cuMemGetAddressRange(&base, &size, block));
    say("handle of freed", cuMemRetainAllocationHandle(&handle, (void *)block));
}

/* What only memory of cuMemCreate can have done to it. */
static void take_for_mapped(size_t bytes)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    unsigned long long flags = 99;
    unsigned seen = 0;
    CUdeviceptr block;
    say("make", cuMemAlloc(&block, bytes));
    say("fill", cuMemsetD32(block, 77, bytes / 4));
    say("access of a block", cuMemGetAccess(&flags, &access.location, block));
    say("access to a block", cuMemSetAccess(block, 2 << 20, &access, 1));
    say("unmap a block", cuMemUnmap(block, 2 << 20));
    say("unmap of it", cuMemUnmap(block + (2 << 20), 2 << 20));
    say("read", cuMemcpyDtoH(&seen, block, sizeof seen));
    printf("is %u\n", seen);
    say("free", cuMemFree(block));
}

/* Is it set everywhere, and not any more? */
static void set_sync_memops(size_t bytes)
{
    unsigned on = 1, off = 0, is = 0, seen = 0;
    CUdeviceptr block;
    say("make", cuMemAlloc(&block, bytes));
    say("set", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    for (size_t at = 0; at < bytes; at += 1 << 20, seen += is)
        if (cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block + at))
            is = 0;
    printf("set in %u MiB\n", seen);
    say("unset", cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    say("is it", cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    printf("set %u\n", is);
    say("set inside", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block + 77));
    say("is it", cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    printf("set %u\n", is);
    say("set another", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
    say("free", cuMemFree(block));
    say("set freed", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    say("make", cuMemAlloc(&block, bytes));
    say("is it", cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    printf("set %u\n", is);
    say("free", cuMemFree(block));
}

#define LARGE ((size_t)256 << 20)

/* Host memory by the names that it has, behind 200 copies of 256 MiB: there when something is freed. */
static void copy_to_host(CUcontext context, CUstream stream, int way)
{
    CUdeviceptr from, to, block, other;
    unsigned char *host;
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .WidthInBytes = 4096,
                          .Height = 1};
    if (cuMemHostAlloc((void **)&host, 4096, 0) || cuMemAlloc(&from, LARGE) ||
        cuMemAlloc(&to, LARGE) || cuMemAlloc(&block, 4096) || cuMemAlloc(&other, 5 << 20) ||
        cuMemsetD8(block, 5, 4096) || cuCtxSynchronize())
        return;
    host[4095] = 0;
    for (int i = 0; i < 200; i++)
        cuMemcpyDtoDAsync(to, from, LARGE, stream);
    flat.srcDevice = block;
    flat.dstDevice = (CUdeviceptr)host;
    say("copy", way == 0   ? cuMemcpyDtoHAsync(host, block, 4096, stream)
                : way == 1 ? cuMemcpyAsync((CUdeviceptr)host, block, 4096, stream)
                : way == 2 ? cuMemcpyDtoDAsync((CUdeviceptr)host, block, 4096, stream)
                : way == 3
                    ? cuMemcpyPeerAsync((CUdeviceptr)host, context, block, context, 4096, stream)
                    : cuMemcpy2DAsync(&flat, stream));
    say("free", cuMemFree(other));
    printf("way %d: %d\n", way, host[4095]);
    say("wait", cuCtxSynchronize());
    cuMemFree(from);
    cuMemFree(to);
    cuMemFree(block);
    cuMemFreeHost(host);
}

int main(void)
{
    CUcontext context;
    CUstream stream;
    CUdeviceptr small, large;
    CUdevice device;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
        cuCtxSetCurrent(context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
        return 1;
    ask_too_much(1 << 20, 1 << 20);
    ask_too_much(1000, 0);
    say("small", cuMemAlloc(&small, 1000));
    say("large", cuMemAlloc(&large, 30 << 20));
    capture_a_free(small, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    capture_a_free(large, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    capture_a_free(large, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 1; i < 4; i++) {
        say("free inside, small", cuMemFree(small + i));
        say("free inside, large", cuMemFreeAsync(large + i, stream));
    }
    say("set small", cuMemsetD8(small, 2, 1000));
    say("set large", cuMemsetD8(large, 2, 30 << 20));
    say("wait", cuCtxSynchronize());
    /* A second free before the stream has come to the first one is answered natively as the driver
     * pleases. */
    say("free on a stream", cuMemFreeAsync(large, stream));
    say("wait", cuStreamSynchronize(stream));
    say("large again", cuMemFree(large));
    say("free", cuMemFree(small));
    say("small again", cuMemFree(small));
    say("small on a stream", cuMemFreeAsync(small, stream));
    say("wait", cuCtxSynchronize());
    ask_about_freed(700);
    ask_about_freed(3000000);
    ask_about_freed(40 << 20);
    take_for_mapped(5 << 20);
    take_for_mapped(40 << 20);
    set_sync_memops(50 << 20);
    for (int way = 0; way < 5; way++)
        copy_to_host(context, stream, way);
    return 0;
}
