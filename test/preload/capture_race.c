/* Threads allocate, launch and free all the while another captures; no capture may fail. In global
 * mode the allocating threads must say that they may (relaxed); then natively none does. Arguments:
 * captures, and 1 for local mode. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "driver_case.h"

static atomic_int stop;
static CUcontext context;
static int local;

static void *allocate(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream stream;
    OK(cuCtxSetCurrent(context));
    if (!local)
        OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; !stop; i++) {
        size_t bytes = i % 7 == 0 ? 3 * MIB : 1000;
        CUdeviceptr block = make(bytes);
        write_all(stream, 2000, block, bytes);
        OK(cuMemFree(block));
    }
    return unused;
}

static void *capture(void *captures)
{
    CUstream stream;
    CUgraph graph;
    int failed = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < *(int *)captures && !stop; i++) {
        OK(cuStreamBeginCapture(stream, local ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                              : CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cachalot_sim_launch(stream, 1000, NULL, 0));
        if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS)
            OK(cuGraphDestroy(graph));
        else
            failed++;
        if (i % 64 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    SAY(failed);
    return NULL;
}

int main(int count, char **argument)
{
    pthread_t allocating[2], capturing;
    CHECK(count == 3);
    int captures = atoi(argument[1]);
    local = atoi(argument[2]);
    context = begin();
    printf("running\n");
    fflush(stdout);
    for (int i = 0; i < 2; i++)
        OK(pthread_create(&allocating[i], NULL, allocate, NULL));
    OK(pthread_create(&capturing, NULL, capture, &captures));
    OK(pthread_join(capturing, NULL));
    stop = 1;
    for (int i = 0; i < 2; i++)
        OK(pthread_join(allocating[i], NULL));
    return 0;
}
