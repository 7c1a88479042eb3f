/* Random work on streams of every kind, freed right after it was launched, as natively cudaFree
 * allows. The device ends the process if two owners' work meets. Arguments: seed, threads,
 * operations of each. */
#include <pthread.h>

#include "driver_case.h"

#define STREAMS 8
#define HELD 24

static CUcontext context;
static unsigned seed, operations;

struct state {
    uint64_t random;
    CUstream stream[STREAMS];
    struct {
        CUdeviceptr address;
        size_t bytes;
    } held[HELD];
};

static unsigned dice(struct state *state, unsigned sides)
{
    state->random = state->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state->random >> 33) % sides;
}

static void touch(struct state *state, CUdeviceptr address, size_t bytes)
{
    CUstream stream = state->stream[dice(state, STREAMS)];
    if (dice(state, 8) == 0)
        OK(cuMemsetD8Async(address, 7, bytes < 4096 ? bytes : 4096, stream));
    else
        write_all(stream, 500 + dice(state, 20000), address, bytes);
}

static void step(struct state *state)
{
    unsigned i = dice(state, HELD);
    if (state->held[i].address) {
        OK(cuMemFree(state->held[i].address));
        state->held[i].address = 0;
        return;
    }
    size_t bytes = dice(state, 10) ? dice(state, 64 * 1024) + 1 : dice(state, 12 * MIB) + 1;
    state->held[i].address = make(bytes);
    state->held[i].bytes = bytes;
    if (dice(state, 16))
        touch(state, state->held[i].address, bytes);
}

static void *work(void *number)
{
    struct state state = {.random = seed * 7919u + (size_t)number};
    OK(cuCtxSetCurrent(context));
    state.stream[0] = NULL;
    state.stream[1] = CU_STREAM_PER_THREAD;
    state.stream[2] = CU_STREAM_LEGACY;
    for (int i = 3; i < STREAMS; i++)
        OK(cuStreamCreate(&state.stream[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    for (unsigned i = 0; i < operations; i++) {
        step(&state);
        if (dice(&state, 3) == 0)
            cachalot_sim_advance(dice(&state, 30000));
        if (dice(&state, 1024) == 0) {
            unsigned k = 3 + dice(&state, STREAMS - 3);
            OK(cuStreamDestroy(state.stream[k]));
            OK(cuStreamCreate(&state.stream[k],
                              k % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        }
    }
    for (int i = 0; i < HELD; i++)
        if (state.held[i].address)
            OK(cuMemFree(state.held[i].address));
    return NULL;
}

int main(int count, char **argument)
{
    pthread_t thread[16];
    CHECK(count == 4);
    unsigned threads = (unsigned)atoi(argument[2]);
    seed = (unsigned)atoi(argument[1]);
    operations = (unsigned)atoi(argument[3]);
    context = begin();
    for (size_t i = 0; i < threads; i++)
        OK(pthread_create(&thread[i], NULL, work, (void *)i));
    for (size_t i = 0; i < threads; i++)
        OK(pthread_join(thread[i], NULL));
    OK(cuCtxSynchronize());
    OK(cuMemFree(make(1)));
    SAY(cachalot_sim_unfinished());
    return 0;
}
