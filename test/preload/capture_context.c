/* A context ends while a stream captures: it may be the stream's, the current one when the capture
 * began, or both. Then memory comes and goes in the other. Arguments: end (destroy, refused,
 * release, reset), stream (its, another, its_thread, another_thread), used (1: memory was asked for
 * in the context that ends). */
#include <string.h>

#include "driver_case.h"

#define BLOCK (3 * MIB)

static CUcontext ends, stays;

static void end(const char *how)
{
    if (strcmp(how, "destroy") == 0)
        SAY(cuCtxDestroy(ends));
    else if (strcmp(how, "refused") == 0)
        SAY(cuCtxDestroy(ends)); /* not for primary contexts */
    else if (strcmp(how, "release") == 0)
        SAY(cuDevicePrimaryCtxRelease(0));
    else
        SAY(cuDevicePrimaryCtxReset(0));
    OK(cuCtxSetCurrent(stays));
}

static void come_and_go(CUstream stream)
{
    for (int i = 0; i < 6; i++) {
        CUdeviceptr block = make(BLOCK);
        write_all(stream, 10000, block, BLOCK);
        SAY(cuMemFree(block));
    }
}

static void end_capture(CUstream stream)
{
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    SAY(cuStreamIsCapturing(stream, &status));
    SAY(status);
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(graph != NULL);
}

int main(int count, char **argument)
{
    CUcontext primary = begin(), own = new_context(0);
    CUstream stream = CU_STREAM_PER_THREAD, work;
    CHECK(count == 4);
    ends = strcmp(argument[1], "destroy") == 0 ? own : primary;
    stays = ends == own ? primary : own;
    int per_thread = strstr(argument[2], "thread") != NULL;
    CUcontext its = argument[2][0] == 'i' ? ends : stays;
    OK(cuCtxSetCurrent(ends));
    if (atoi(argument[3]))
        OK(cuMemFree(make(BLOCK)));
    OK(cuCtxSetCurrent(stays));
    CUdeviceptr written = make(BLOCK);
    OK(cuStreamCreate(&work, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(its));
    if (!per_thread) {
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuCtxSetCurrent(its == ends ? stays : ends));
    }
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuMemsetD8Async(written, 1, 512, stream));
    end(argument[1]);
    SAY(cachalot_sim_captures());
    come_and_go(work);
    if (cachalot_sim_captures()) {
        OK(cuCtxSetCurrent(per_thread ? its : stays));
        end_capture(stream);
        OK(cuCtxSetCurrent(stays));
    }
    come_and_go(work);
    OK(cuCtxSynchronize());
    OK(cuMemFree(written));
    return 0;
}
