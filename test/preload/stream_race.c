/* A stream is destroyed under its work, and the same handle is another thread's stream before the
 * call has come back. The other thread's block is the one whose work goes on, and then it captures
 * on that stream. Argument: rounds. */
#include <pthread.h>
#include <stdatomic.h>

#include "driver_case.h"

static CUcontext context;
static _Atomic(CUstream) destroyed;
static atomic_int met, rounds;

/* What the first thread destroyed is not this stream's. */
static void use(CUstream stream)
{
    CUgraph graph;
    CUdeviceptr block = make(4096);
    write_all(stream, 1000, block, 4096);
    OK(cuMemFree(block));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    usleep(500); /* the other's call comes back, and it frees */
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
}

enum { LEAST = 8, MOST = 1000 };

/* Makes streams until one has the handle, or one more the next time: it came back below those that
 * were there then. */
static void *create(void *unused)
{
    CUstream stream[MOST];
    int most = LEAST;
    OK(cuCtxSetCurrent(context));
    while (rounds) {
        CUstream wanted = destroyed;
        int made = 0;
        most = wanted ? most + 1 : LEAST;
        CHECK(most < MOST);
        while (wanted && made < most) {
            OK(cuStreamCreate(&stream[made], CU_STREAM_NON_BLOCKING));
            if (stream[made++] != wanted) {
                usleep(1);
                continue;
            }
            use(wanted);
            met++;
            most = LEAST;
            destroyed = NULL;
            break;
        }
        while (made)
            OK(cuStreamDestroy(stream[--made]));
    }
    return unused;
}

int main(int count, char **argument)
{
    pthread_t other;
    CHECK(count == 2);
    rounds = atoi(argument[1]);
    context = begin();
    OK(pthread_create(&other, NULL, create, NULL));
    for (; rounds; rounds--) {
        CUstream stream;
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CUdeviceptr block = make(4096);
        write_all(stream, 1000000, block, 4096);
        OK(cuMemFree(block));
        destroyed = stream;
        OK(cuStreamDestroy(stream));
        while (destroyed) {
            OK(cuMemFree(make(100)));
            usleep(20);
        }
        for (int i = 0; i < 3; i++) { /* nothing is outstanding, and we know */
            OK(cuCtxSynchronize());
            OK(cuMemFree(make(100)));
        }
    }
    OK(pthread_join(other, NULL));
    SAY(met);
    return 0;
}
