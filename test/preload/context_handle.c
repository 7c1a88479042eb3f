/* A context's handle comes back while the thread that destroyed it is on its way out of the driver's
 * call: what the next owner allocates stays. Arguments: threads, rounds. With 0 threads the order is
 * set, and instead of rounds: 0 if the first owner was never served, 1 if it was, 2 if it was not
 * before a tool's function that the driver calls at the begin of the end. */
#include "driver_case.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BLOCKS = 4, THREADS = 16 };

static _Atomic int held, within, late;
static CUcontext first;
static unsigned rounds;

static void hold(const char *function, int returning)
{
    if (strncmp(function, "cuCtxDestroy", 12))
        return;
    if (!returning && atomic_exchange(&late, 0)) {
        OK(cuCtxPushCurrent(first));
        make(1000);
        OK(cuMemFree(make(1000)));
        OK(cuCtxPopCurrent(NULL));
    }
    if (!returning || !atomic_exchange(&held, 0))
        return;
    atomic_store(&within, 1);
    while (atomic_load(&within))
        usleep(100);
}

static void *destroy(void *unused)
{
    OK(cuCtxDestroy(first));
    return unused;
}

static void take(CUdeviceptr *block)
{
    static const size_t bytes[BLOCKS] = {1000, 1000, 3 * MIB, 20 * MIB};
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemsetD8(block[i] = make(bytes[i]), 5, 1000));
}

static void give(const CUdeviceptr *block)
{
    unsigned char byte;
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemcpyDtoH(&byte, block[i] + 999, 1));
        CHECK(byte == 5);
        OK(cuMemFree(block[i]));
    }
}

static void in_order(int how)
{
    int served = how == 1;
    CUdeviceptr block[BLOCKS];
    pthread_t thread;
    CUcontext next;
    first = new_context(0);
    if (served)
        OK(cuMemFree(make(MIB)));
    OK(cuCtxPopCurrent(NULL));
    atomic_store(&held, 1);
    atomic_store(&late, how == 2);
    cachalot_sim_subscribe(hold);
    CHECK(pthread_create(&thread, NULL, destroy, NULL) == 0);
    while (!atomic_load(&within))
        usleep(100);
    for (int owner = 0; owner <= served; owner++) { /* the first of two ends meanwhile */
        next = new_context(0);
        SAY(next == first);
        if (owner < served)
            OK(cuCtxDestroy(next));
    }
    take(block);
    atomic_store(&within, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    cachalot_sim_subscribe(NULL);
    give(block);
    OK(cuMemFree(make(MIB)));
    OK(cuCtxDestroy(next));
}

static void *come_and_go(void *unused)
{
    for (unsigned i = 0; i < rounds; i++) {
        CUdeviceptr block[BLOCKS];
        CUcontext context = new_context(0);
        take(block);
        give(block);
        OK(cuCtxDestroy(context));
    }
    return unused;
}

int main(int count, char **argument)
{
    pthread_t thread[THREADS];
    CHECK(count == 3);
    int threads = atoi(argument[1]);
    rounds = (unsigned)atoi(argument[2]);
    begin();
    OK(cuMemFree(make(MIB)));
    if (!threads)
        in_order((int)rounds);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&thread[i], NULL, come_and_go, NULL) == 0);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    return 0;
}
