/* Memory comes and goes while a stream captures, as far as that is allowed natively; then the
 * capture ends. Arguments: mode (global, local, relaxed), begin (v1, v2, graph), end (end, destroy,
 * invalidate, thread, context). */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "driver_case.h"

#define BLOCK (30 * MIB)

static CUdeviceptr block[3], touched;
static CUstream stream;
static CUcontext context;
static char **argument;

static int is(int i, const char *what)
{
    return strcmp(argument[i], what) == 0;
}

/* In global mode only a thread that says so may. */
static void *allocate_elsewhere(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuCtxSetCurrent(context));
    if (is(1, "global"))
        OK(cuThreadExchangeStreamCaptureMode(&mode));
    SAY(cuMemFree(block[0]));
    CUdeviceptr more = make(BLOCK);
    SAY(cuMemFree(more));
    return unused;
}

static CUresult begin_capture(CUstreamCaptureMode mode)
{
    CUgraph graph;
    if (is(2, "v1"))
        return ((CUresult(*)(CUstream))dlsym(RTLD_DEFAULT, "cuStreamBeginCapture"))(stream);
    if (is(2, "v2"))
        return cuStreamBeginCapture(stream, mode);
    OK(cuGraphCreate(&graph, 0));
    return cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, mode);
}

static void end_capture(void)
{
    CUgraph graph = NULL;
    CUgraphExec executable;
    CUstreamCaptureStatus status;
    if (is(3, "destroy")) {
        SAY(cuStreamDestroy(stream));
        return;
    }
    if (is(3, "thread"))
        return; /* the stream ends with its thread */
    if (is(3, "invalidate"))
        SAY(cuStreamSynchronize(stream));
    SAY(cuStreamIsCapturing(stream, &status));
    SAY(status);
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(graph != NULL);
    if (!graph)
        return;
    SAY(cuGraphInstantiateWithFlags(&executable, graph, 0));
    SAY(cuGraphLaunch(executable, NULL));
    SAY(cuCtxSynchronize());
}

static void *capture(void *unused)
{
    pthread_t thread;
    OK(cuCtxSetCurrent(context));
    SAY(begin_capture(is(1, "global")  ? CU_STREAM_CAPTURE_MODE_GLOBAL
                      : is(1, "local") ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                       : CU_STREAM_CAPTURE_MODE_RELAXED));
    write_all(stream, 1000, touched, 1000);
    OK(pthread_create(&thread, NULL, allocate_elsewhere, NULL));
    OK(pthread_join(thread, NULL));
    SAY(cuMemFreeAsync(block[2], stream)); /* would be a node, and frees nothing */
    if (is(1, "relaxed")) {
        SAY(cuMemFree(block[1]));
        CUdeviceptr more = make(BLOCK);
        SAY(cuMemFree(more));
    }
    end_capture();
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    CHECK(count == 4);
    argument = arguments;
    context = begin();
    touched = make(1000);
    for (int i = 0; i < 3; i++)
        block[i] = make(BLOCK);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (is(3, "thread")) {
        stream = CU_STREAM_PER_THREAD;
        OK(pthread_create(&thread, NULL, capture, NULL));
        OK(pthread_join(thread, NULL));
    } else {
        capture(NULL);
    }
    /* What was freed meanwhile can be had again, and what is freed now. */
    SAY(cuMemFree(block[2]));
    SAY(cuCtxSynchronize());
    for (int i = 0; i < 2; i++)
        make(BLOCK);
    return 0;
}
