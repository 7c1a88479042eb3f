/* Random work on pinned memory in one or two contexts, by threads that free it right after they
 * launched the work, as natively cudaFreeHost allows. The host writes to each block as soon as it
 * has it: no work may touch it then. Arguments: seed, threads, operations of each, contexts. */
#include "driver_case.h"

#include <pthread.h>
#include <stdint.h>

enum { HELD = 16, STREAMS = 3, SIDES = 2 };

struct held {
    unsigned char *host; /* NULL: none */
    size_t bytes;
};

struct worker {
    uint64_t random;
    CUstream stream[SIDES][STREAMS];
    struct held held[SIDES][HELD];
};

static CUcontext contexts[SIDES];
static unsigned seed, threads, operations, sides;

static unsigned dice(struct worker *w, unsigned faces)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->random >> 33) % faces;
}

static void take(struct worker *w, struct held *held)
{
    unsigned flags = dice(w, 8) ? 0 : CU_MEMHOSTALLOC_WRITECOMBINED;
    held->bytes = 1 + dice(w, dice(w, 10) ? 64 * KIB : 5 * MIB);
    OK(cuMemHostAlloc((void **)&held->host, held->bytes, flags));
    if (cachalot_sim_is_busy((CUdeviceptr)held->host, held->bytes)) {
        fprintf(stderr, "the host got memory that work still uses\n");
        abort();
    }
    held->host[0] = held->host[held->bytes - 1] = (unsigned char)dice(w, 256);
}

static void use(struct worker *w, struct held *held)
{
    unsigned side = dice(w, sides);
    struct cachalot_sim_range range = {(CUdeviceptr)held->host, held->bytes, 0};
    OK(cuCtxPushCurrent(contexts[side]));
    OK(cachalot_sim_launch(w->stream[side][dice(w, STREAMS)], dice(w, 60000), &range, 1));
    OK(cuCtxPopCurrent(NULL));
}

static void capture_something(struct worker *w, CUstream stream)
{
    CUgraph graph;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    struct held other = {0};
    take(w, &other);
    use(w, &other);
    OK(cuMemFreeHost(other.host));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
}

static void step(struct worker *w)
{
    unsigned side = dice(w, sides);
    struct held *held = &w->held[side][dice(w, HELD)];
    OK(cuCtxSetCurrent(contexts[side]));
    if (dice(w, 3) == 0)
        cachalot_sim_advance(dice(w, 30000));
    if (threads == 1 && dice(w, 200) == 0) {
        CUstream own;
        OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
        capture_something(w, own);
        OK(cuStreamDestroy(own));
    }
    if (dice(w, 300) == 0)
        OK(cuCtxSynchronize());
    if (!held->host)
        take(w, held);
    for (unsigned uses = dice(w, 3); uses; uses--)
        use(w, held);
    if (dice(w, 2)) {
        OK(cuMemFreeHost(held->host));
        held->host = NULL;
    }
}

static void *work(void *argument)
{
    struct worker *w = argument;
    for (unsigned side = 0; side < sides; side++) {
        OK(cuCtxSetCurrent(contexts[side]));
        for (int i = 0; i < STREAMS; i++)
            OK(cuStreamCreate(&w->stream[side][i], CU_STREAM_NON_BLOCKING));
    }
    for (unsigned i = 0; i < operations; i++)
        step(w);
    for (unsigned side = 0; side < sides; side++) {
        OK(cuCtxSetCurrent(contexts[side]));
        for (int i = 0; i < HELD; i++)
            if (w->held[side][i].host)
                OK(cuMemFreeHost(w->held[side][i].host));
        OK(cuCtxSynchronize());
    }
    return NULL;
}

int main(int count, char **argument)
{
    static struct worker workers[16];
    pthread_t thread[16];
    CHECK(count == 5);
    seed = (unsigned)atoi(argument[1]);
    threads = (unsigned)atoi(argument[2]);
    operations = (unsigned)atoi(argument[3]);
    sides = (unsigned)atoi(argument[4]);
    CHECK(threads >= 1 && threads <= 16 && sides >= 1 && sides <= SIDES);
    contexts[0] = begin();
    if (sides == 2)
        contexts[1] = new_context(0);
    for (unsigned i = 0; i < threads; i++) {
        workers[i].random = seed * 1000u + i;
        CHECK(!pthread_create(&thread[i], NULL, work, &workers[i]));
    }
    for (unsigned i = 0; i < threads; i++)
        CHECK(!pthread_join(thread[i], NULL));
    SAY(cachalot_sim_calls("cuMemHostAlloc"));
    return 0;
}
