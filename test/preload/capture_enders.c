/* While one thread is in the driver's call that will end a capture, another thread's call is refused
 * that would have ended it, too: it has ended once, and does not count any more. Argument: capture
 * (both end the capture), stream (a context is destroyed, and a stream in it), context (a context is
 * destroyed, and the capture in it ended). */
#include "driver_case.h"

#include <pthread.h>
#include <stdatomic.h>

struct end {
    const char *function; /* before it the thread waits */
    _Atomic int waits;
};

static struct end first, second = {.function = "cuStreamDestroy"};
static _Thread_local struct end *own;
static CUcontext ends;
static CUstream stream;

static void hold(const char *function, int returning)
{
    struct end *end = own;
    if (!end || returning || strncmp(function, end->function, strlen(end->function)))
        return;
    own = NULL;
    atomic_store(&end->waits, 1);
    while (atomic_load(&end->waits))
        usleep(100);
}

static void start(pthread_t *thread, void *(*run)(void *), struct end *end)
{
    CHECK(pthread_create(thread, NULL, run, end) == 0);
    while (!atomic_load(&end->waits))
        usleep(100);
}

static void finish(pthread_t thread, struct end *end)
{
    atomic_store(&end->waits, 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *capture_and_end(void *end)
{
    CUgraph graph;
    OK(cuCtxSetCurrent(ends));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    own = end;
    if (strcmp(first.function, "cuStreamEndCapture")) {
        OK(cuCtxDestroy(ends));
        return NULL;
    }
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    return NULL;
}

static void *destroy_stream(void *end)
{
    OK(cuCtxSetCurrent(ends));
    own = end;
    SAY(cuStreamDestroy(stream));
    return NULL;
}

int main(int count, char **argument)
{
    pthread_t thread[2];
    CUgraph graph;
    CUstream work;
    CHECK(count == 2);
    CUcontext primary = begin();
    int captures = strcmp(argument[1], "capture") == 0,
        streams = strcmp(argument[1], "stream") == 0;
    first.function = captures ? "cuStreamEndCapture" : "cuCtxDestroy";
    OK(cuMemFree(make(MIB)));
    ends = captures ? primary : new_context(0);
    OK(cuMemFree(make(MIB)));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(primary));
    cachalot_sim_subscribe(hold);
    start(&thread[0], capture_and_end, &first);
    if (streams) {
        start(&thread[1], destroy_stream, &second);
    } else {
        OK(cuCtxSetCurrent(ends));
        SAY(cuStreamEndCapture(stream, &graph));
        OK(cuCtxSetCurrent(primary));
    }
    finish(thread[0], &first);
    if (streams)
        finish(thread[1], &second);
    cachalot_sim_subscribe(NULL);
    SAY(cachalot_sim_captures());
    OK(cuStreamCreate(&work, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 20; i++) {
        CUdeviceptr block = make(3 * MIB);
        write_all(work, 1000, block, 3 * MIB);
        OK(cuMemFree(block));
    }
    return 0;
}
