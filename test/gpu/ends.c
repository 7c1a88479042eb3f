/* How contexts end, with memory freed and live, work under way and captures in them, and how others
 * go on: what the driver answers, and what is read back. */
#define _DEFAULT_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static CUresult made(CUcontext *context)
{
#if CUDA_VERSION >= 13000
    return cuCtxCreate_v4(context, NULL, 0, 0);
#else
    return cuCtxCreate_v2(context, 0, 0);
#endif
}

static void CUDA_CB nap(void *ms)
{
    usleep(1000 * (unsigned)(size_t)ms);
}

/* Bytes that are wrong after a set and a copy back. */
static int wrong(size_t bytes, unsigned char value)
{
    unsigned char back[4096];
    CUdeviceptr block;
    int count = 0, code = cuMemAlloc(&block, bytes);
    if (code)
        return -code;
    if (cuMemsetD8(block, value, bytes) ||
        cuMemcpyDtoH(back, block + bytes - sizeof back, sizeof back))
        return -1000;
    for (size_t i = 0; i < sizeof back; i++)
        count += back[i] != value;
    return cuMemFree(block) ? -2000 : count;
}

/* In the current context: blocks freed and live, work of 30 ms, perhaps a capture. */
static void use(int capturing)
{
    CUdeviceptr block[6];
    CUstream stream, captured;
    CUevent event;
    SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    SAY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 6; i++) {
        SAY(cuMemAlloc(&block[i], (size_t)1000 << 3 * i));
        SAY(cuMemsetD8Async(block[i], 1, 1000, stream));
    }
    SAY(cuEventRecord(event, stream));
    for (int i = 0; i < 6; i += 2)
        SAY(cuMemFree(block[i]));
    if (capturing)
        SAY(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(wrong(7 * MIB, 3));
    SAY(cuLaunchHostFunc(stream, nap, (void *)30));
}

static void end(const char *how, int capturing)
{
    CUcontext context, again;
    CUdeviceptr block;
    printf("%s, capture %d\n", how, capturing);
    if (strcmp(how, "destroy"))
        SAY(cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
    else
        SAY(made(&context));
    use(capturing);
    if (!strcmp(how, "destroy"))
        SAY(cuCtxDestroy(context));
    else if (!strcmp(how, "reset"))
        SAY(cuDevicePrimaryCtxReset(0));
    else
        SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuMemAlloc(&block, MIB));
    SAY(cuDevicePrimaryCtxRetain(&again, 0) || cuCtxSetCurrent(again));
    for (int i = 0; i < 8; i++)
        SAY(wrong(((size_t)4096 << i) + MIB * (i % 2), i));
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuCtxSetCurrent(NULL));
}

static atomic_int done;

/* As UCX does around its calls. */
static void *retains(void *count)
{
    CUcontext context;
    for (; !done; ++*(int *)count)
        if (cuDevicePrimaryCtxRetain(&context, 0) || cuDevicePrimaryCtxRelease(0))
            return NULL;
    *(int *)count = -1;
    return NULL;
}

static void *others(void *codes)
{
    for (int i = 0; i < 20; i++) {
        CUcontext context;
        *(int *)codes |=
            made(&context) || wrong(9 * MIB, 4) || wrong(5000, 5) || cuCtxDestroy(context);
    }
    return NULL;
}

static void beside(void)
{
    pthread_t thread[3];
    CUcontext primary;
    int count = 0, codes[2] = {0}, bad = 0;
    SAY(cuDevicePrimaryCtxRetain(&primary, 0) || cuCtxSetCurrent(primary));
    pthread_create(&thread[0], NULL, retains, &count);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[1 + i], NULL, others, &codes[i]);
    for (int i = 0; i < 2000; i++)
        bad |= wrong(4096 + (size_t)i * 9001, i);
    pthread_join(thread[1], NULL);
    pthread_join(thread[2], NULL);
    done = 1;
    pthread_join(thread[0], NULL);
    printf("beside: %d %d %d %d\n", bad, codes[0], codes[1], count == -1);
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuCtxSetCurrent(NULL));
}

#if CUDA_VERSION >= 12040
/* A green context that outlives the last release of the primary one. */
static void green(void)
{
    CUdevResource all;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUcontext primary;
    CUdeviceptr block;
    unsigned flags;
    int active;
    SAY(cuDevicePrimaryCtxRetain(&primary, 0) || cuCtxSetCurrent(primary));
    SAY(wrong(3 * MIB, 1));
    if (cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) ||
        cuDevResourceGenerateDesc(&description, &all, 1) ||
        cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM))
        return;
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(wrong(3 * MIB, 2));
    SAY(cuGreenCtxDestroy(green));
    SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    SAY(active);
    SAY(cuMemAlloc(&block, 3 * MIB));
    SAY(cuDevicePrimaryCtxRetain(&primary, 0) || cuCtxSetCurrent(primary));
    SAY(wrong(3 * MIB, 4));
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuCtxSetCurrent(NULL));
}
#endif

int main(void)
{
    SAY(cuInit(0));
    for (int capturing = 0; capturing < 2; capturing++) {
        end("destroy", capturing);
        end("reset", capturing);
        end("release", capturing);
    }
    beside();
#if CUDA_VERSION >= 12040
    green();
#endif
    return 0;
}
