/* The stress's captures, graphs and waits. */
#include <pthread.h>

#include "stress.h"

/* Held for reading by whoever captures: no context may be synchronised then. */
static pthread_rwlock_t captures = PTHREAD_RWLOCK_INITIALIZER;

void synchronize(struct worker *w)
{
    unsigned stream = pick(w);
    if (dice(w, 2)) {
        OK(cuStreamSynchronize(w->at->stream[stream]));
        return;
    }
    if (w->capturing || pthread_rwlock_trywrlock(&captures))
        return;
    OK(cuCtxSynchronize());
    forget_order(w);
    OK(pthread_rwlock_unlock(&captures));
}

static void captured_work(struct worker *w, CUstream stream, const struct block *block)
{
    if (dice(w, 3))
        write_all(stream, 500 + dice(w, 5000), block->address, block->bytes);
    else
        OK(cuMemsetD8Async(block->address, 3, block->bytes < 512 ? block->bytes : 512, stream));
}

/* Another stream takes part: behind the first, and the first behind it. */
static void fork_and_join(struct worker *w, CUstream stream, CUstream other,
                          const struct block *block)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(other, event, 0));
    captured_work(w, other, block);
    OK(cuEventRecord(event, other));
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(cuEventDestroy(event));
}

static void capture(struct worker *w, struct graph *into, void (*meanwhile)(struct worker *))
{
    /* Nobody may use the legacy stream while a blocking one captures. */
    unsigned first = dice(w, 2), i = first ? OWN : OWN + 2, j = first ? OWN + 2 : OWN;
    if (w->alone && dice(w, 4) == 0) {
        i = dice(w, 2) ? PER_THREAD : OWN + 1;
        meanwhile = NULL;
    }
    leave_stream(w, i);
    leave_stream(w, j);
    CUstream stream = w->at->stream[i], other = w->at->stream[j];
    struct block block = {.bytes = 1 + dice(w, 100000)};
    block.address = make(block.bytes);
    OK(pthread_rwlock_rdlock(&captures));
    w->capturing = 1u << i | 1u << j;
    OK(cuStreamBeginCapture(stream, (CUstreamCaptureMode)dice(w, 3)));
    for (unsigned n = 1 + dice(w, 3); n; n--) {
        captured_work(w, stream, &block);
        if (meanwhile && dice(w, 2))
            meanwhile(w);
        else
            OK(cuMemFree(make(1 + dice(w, 3000))));
    }
    if (meanwhile && dice(w, 4) == 0)
        fork_and_join(w, stream, other, &block);
    CUgraph graph = NULL;
    if (i != PER_THREAD && dice(w, 16) == 0) {
        OK(cuStreamDestroy(stream)); /* and with it the capture */
        OK(cuStreamCreate(&w->at->stream[i],
                          is_blocking(i) ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    } else {
        OK(cuStreamEndCapture(stream, &graph));
    }
    w->capturing = 0;
    OK(pthread_rwlock_unlock(&captures));
    if (!graph) {
        release(w, &block);
        return;
    }
    OK(cuGraphInstantiate(&into->exec, graph, 0));
    OK(cuGraphDestroy(graph));
    into->block = block;
}

void drop_graph(struct worker *w, struct graph *graph)
{
    OK(cuGraphExecDestroy(graph->exec));
    graph->exec = NULL;
    release(w, &graph->block);
}

void use_graph(struct worker *w, void (*meanwhile)(struct worker *))
{
    struct graph *graph = &w->at->graph[dice(w, GRAPHS)];
    if (w->capturing)
        return;
    if (!graph->exec) {
        if (may_capture())
            capture(w, graph, meanwhile);
    } else if (dice(w, 6) == 0) {
        drop_graph(w, graph);
    } else {
        unsigned stream = pick(w);
        order(w, &graph->block, stream);
        OK(cuGraphLaunch(graph->exec, w->at->stream[stream]));
        if (dice(w, 4) == 0)
            drop_graph(w, graph);
    }
}
