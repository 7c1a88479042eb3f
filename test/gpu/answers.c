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
    return 0;
}
