/* The driver refuses to destroy a primary context in which nothing was asked for yet. Argument: ask:
 * meanwhile a tool asks for memory in it, and later another context gets its place; again: meanwhile
 * a tool is refused it, too. Natively the context goes on as before. */
#include <pthread.h>

#include "driver_case.h"

static const char *how;
static CUcontext primary;

static void meanwhile(const char *function, int returning)
{
    CUdeviceptr block;
    if (returning || strncmp(function, "cuCtxDestroy", 12))
        return;
    cachalot_sim_subscribe(NULL);
    if (strcmp(how, "ask"))
        SAY(cuCtxDestroy(primary));
    else
        SAY(cuMemAlloc(&block, 1000));
}

static void *elsewhere(void *nothing)
{
    CUcontext other;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    OK(cuMemFree(make(5 * MIB)));
    return nothing;
}

int main(int argc, char **argv)
{
    int device = -1;
    pthread_t thread;
    CHECK(argc == 2);
    how = argv[1];
    primary = begin();
    cachalot_sim_subscribe(meanwhile);
    SAY(cuCtxDestroy(primary));
    OK(pthread_create(&thread, NULL, elsewhere, NULL));
    OK(pthread_join(thread, NULL));
    for (int i = 0; i < 100; i++)
        OK(cuMemFree(make(3 * MIB)));
    OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, make(3 * MIB)));
    SAY(device);
    return 0;
}
