/* A context of the device ends while another one asks for memory that was freed in the first before:
 * natively there is enough at any time. Arguments: destroy, reset or release; rounds; held: the
 * driver's call is held until the other has its memory. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver_case.h"

enum { BLOCKS = 20, PATIENCE_MS = 8000 };

static atomic_int ready, asks, has, late;

static void hold(const char *function, int returning)
{
    if (returning || (!strstr(function, "CtxDestroy") && !strstr(function, "PrimaryCtxRe")))
        return;
    asks = 1;
    for (int i = 0; !has && i < PATIENCE_MS; i++)
        usleep(1000);
    late += !has;
}

static void *ask(void *failures)
{
    CUdeviceptr wanted;
    CUcontext own = new_context(0);
    CUdeviceptr first = make(2 * MIB);
    ready = 1;
    while (!asks)
        usleep(50);
    CUresult result = cuMemAlloc(&wanted, 700 * MIB);
    *(int *)failures += result != CUDA_SUCCESS;
    if (!result)
        OK(cuMemFree(wanted));
    has = 1;
    OK(cuMemFree(first));
    while (asks)
        usleep(50);
    OK(cuCtxDestroy(own));
    return NULL;
}

static void one_round(const char *how, int held, int *failures)
{
    pthread_t other;
    CUcontext context = NULL;
    CUdeviceptr blocks[BLOCKS];
    if (!strcmp(how, "destroy"))
        context = new_context(0);
    else
        OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    ready = has = 0;
    OK(pthread_create(&other, NULL, ask, failures));
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = make(40 * MIB);
    for (int i = 0; i < BLOCKS; i++) {
        write_all(NULL, 100000, blocks[i], MIB);
        OK(cuMemFree(blocks[i]));
    }
    while (!ready)
        usleep(50);
    cachalot_sim_subscribe(held ? hold : NULL);
    asks |= !held;
    end_context(how, context);
    cachalot_sim_subscribe(NULL);
    asks = 1;
    while (!has)
        usleep(50);
    asks = 0;
    OK(pthread_join(other, NULL));
}

int main(int argc, char **argv)
{
    int failures = 0, held = argc > 3;
    OK(cuInit(0));
    for (int round = 0; round < atoi(argv[2]); round++)
        one_round(argv[1], held, &failures);
    SAY(failures);
    SAY(late);
    return 0;
}
