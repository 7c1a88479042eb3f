/* As the last release of the primary context returns, a tool has made a green context of it, or has
 * reset it. Argument: green or reset. */
#include <pthread.h>

#include "driver_case.h"

static const char *how;
static CUcontext primary;
static CUdeviceptr block;
static CUgreenCtx green;

static void within(const char *function, int returning)
{
    if (!returning || strncmp(function, "cuDevicePrimaryCtxRelease", 25))
        return;
    cachalot_sim_subscribe(NULL);
    if (strcmp(how, "green"))
        SAY(cuDevicePrimaryCtxReset(0));
    else
        SAY(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
}

static void *free_it(void *nothing)
{
    OK(cuCtxSetCurrent(primary));
    OK(cuMemFree(block));
    return nothing;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    CUstream stream;
    CHECK(argc == 2);
    how = argv[1];
    primary = begin();
    new_context(0);
    OK(cuMemFree(make(1000))); /* another context that may want what is idle */
    OK(cuCtxSetCurrent(primary));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemFree(make(30 * MIB)));
    block = make(3 * MIB);
    write_all(NULL, 100000000, block, 3 * MIB);
    OK(pthread_create(&thread, NULL, free_it, NULL));
    OK(pthread_join(thread, NULL));
    cachalot_sim_subscribe(within);
    SAY(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    for (size_t size = 1000; size <= 40 * MIB; size *= 3) {
        block = make(size);
        write_all(NULL, 1000, block, size);
        OK(cuMemFree(block));
    }
    SAY(cuCtxSynchronize());
    return 0;
}
