/* A stream captures while the device is full of what lies idle in the cache, freed on one stream or
 * on two: requests that need the idle memory get it, and the work that used it is done by then. So
 * does a request in another context, for which idle memory goes back to the driver. Argument:
 * streams. */
#include "driver_case.h"

#define PIECE (2 * MIB)

enum { MOST = 64, HELD = 4 };

static void fill(CUstream *stream, int streams)
{
    CUdeviceptr piece[MOST];
    int count = 0;
    while (count < MOST && cuMemAlloc(&piece[count], PIECE) == CUDA_SUCCESS)
        count++;
    for (int i = 0; i < count; i++) {
        write_all(stream[i % streams], 500 * 1000, piece[i], PIECE);
        OK(cuMemFree(piece[i]));
    }
}

int main(int count, char **argument)
{
    const size_t bytes[HELD] = {20 * MIB, 1000, 9 * MIB, 11 * MIB};
    CUdeviceptr held[HELD] = {0};
    CUstream work[2], captured;
    CUgraph graph;
    CHECK(count == 2);
    CUcontext context = begin(), other = new_context(0);
    CUdeviceptr written, elsewhere;
    OK(cuCtxSetCurrent(context));
    written = make(PIECE);
    OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&work[0], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&work[1], CU_STREAM_NON_BLOCKING));
    fill(work, atoi(argument[1]));
    OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8Async(written, 1, 512, captured));
    for (int i = 0; i < HELD; i++) {
        SAY(cuMemAlloc(&held[i], bytes[i]));
        write_all(work[0], 1000, held[i], bytes[i]);
    }
    OK(cuCtxSetCurrent(other));
    SAY(cuMemAlloc(&elsewhere, PIECE));
    OK(cuMemFree(elsewhere));
    OK(cuCtxSetCurrent(context));
    SAY(cuStreamEndCapture(captured, &graph));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < HELD; i++)
        OK(cuMemFree(held[i]));
    OK(cuMemFree(written));
    return 0;
}
