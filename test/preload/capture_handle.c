/* A stream's or context's handle comes back, or its next capture begins, while the thread that ended
 * the last one is on its way out of the driver's call: the next owner captures, and is ending it in
 * turn when that thread goes on. Until the second end is done its capture is under way: nothing
 * spoils it, and a free waits for a copy to the host. Argument: what is ended (stream, context,
 * capture). */
#include "driver_case.h"

#include <pthread.h>
#include <stdatomic.h>

enum moment { NOTHING, FIRST_GOES, SECOND_COMES, FIRST_GONE };

static _Atomic enum moment moment;
static _Thread_local enum moment ends; /* FIRST_GOES or SECOND_COMES: whose end this thread's is */
static int contexts, only_captures;
static CUcontext primary;
static CUstream first, second;

static void reach(enum moment now)
{
    atomic_store(&moment, now);
    while (atomic_load(&moment) == now)
        usleep(100);
}

/* The first thread is held behind the driver's call, the second one before it. */
static void hold(const char *function, int returning)
{
    const char *name = contexts        ? "cuCtxDestroy"
                       : only_captures ? "cuStreamIsCapturing" /* asked by us, behind the end */
                                       : "cuStreamDestroy";
    enum moment now = ends;
    if (now && !strncmp(function, name, strlen(name)) && returning == (now == FIRST_GOES)) {
        ends = NOTHING;
        reach(now);
    }
}

static CUcontext capture_on(CUstream *stream)
{
    CUcontext context = contexts ? new_context(0) : primary;
    OK(cuCtxSetCurrent(context));
    if (only_captures && first)
        *stream = first;
    else
        OK(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(*stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    return context;
}

static void end(CUcontext context, CUstream stream, enum moment which)
{
    CUgraph graph = NULL;
    if (only_captures && which == SECOND_COMES)
        reach(which);
    else
        ends = which;
    if (contexts)
        OK(cuCtxDestroy(context));
    else if (only_captures)
        OK(cuStreamEndCapture(stream, &graph));
    else
        OK(cuStreamDestroy(stream));
    if (ends) /* natively nothing was asked */
        reach(ends);
    ends = NOTHING;
    if (graph)
        OK(cuGraphDestroy(graph));
}

static void *next_owner(void *before)
{
    while (atomic_load(&moment) != FIRST_GOES)
        usleep(100);
    CUcontext context = capture_on(&second);
    SAY(contexts ? context == before : second == first);
    end(context, second, SECOND_COMES); /* lets the first thread go */
    return NULL;
}

int main(int count, char **argument)
{
    pthread_t thread;
    CUstream work;
    CUstreamCaptureStatus status;
    unsigned char *host;
    CHECK(count == 2);
    contexts = strcmp(argument[1], "context") == 0;
    only_captures = strcmp(argument[1], "capture") == 0;
    primary = begin();
    OK(cuStreamCreate(&work, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost((void **)&host, MIB));
    memset(host, 0, MIB);
    CUdeviceptr block = make(MIB);
    CUcontext context = capture_on(&first);
    OK(cuCtxSetCurrent(primary));
    cachalot_sim_subscribe(hold);
    CHECK(pthread_create(&thread, NULL, next_owner, context) == 0);
    end(context, first, FIRST_GOES);
    SAY(cachalot_sim_captures());
    OK(cuCtxSetCurrent(primary));
    OK(cachalot_sim_launch(work, 20 * 1000 * 1000, NULL, 0));
    OK(cuMemsetD8Async(block, 7, MIB, work));
    OK(cuMemcpyDtoHAsync(host, block, MIB, work));
    OK(cuMemFree(block));
    SAY(host[MIB - 1]);
    OK(cuStreamIsCapturing(second, &status));
    SAY(status);
    atomic_store(&moment, FIRST_GONE);
    CHECK(pthread_join(thread, NULL) == 0);
    cachalot_sim_subscribe(NULL);
    OK(cuCtxSetCurrent(primary));
    SAY(cachalot_sim_captures());
    for (int i = 0; i < 3; i++) /* no capture counts any more */
        OK(cuMemFree(make(MIB)));
    OK(cuMemFreeHost(host));
    return 0;
}
