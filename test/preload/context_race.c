/* A context ends while other threads allocate in it; what they get then may be an error. After each
 * time memory is there again, and may be used. Arguments: destroy, reset or release; rounds. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver_case.h"

enum { THREADS = 4, HELD = 8 };

static _Atomic(CUcontext) context;
static atomic_int running, parked;

static void allocate_for_a_while(unsigned *random)
{
    CUdeviceptr held[HELD] = {0};
    cuCtxSetCurrent(context);
    while (running > 0) {
        CUdeviceptr *one = &held[(*random = *random * 1664525 + 1013904223) >> 29];
        if (*one)
            cuMemFree(*one);
        if (*one || cuMemAlloc(one, 1 + (*random >> 8) % (one < &held[4] ? 5000 : 8 * MIB)))
            *one = 0;
    }
    cuCtxSetCurrent(NULL);
}

static void *work(void *number)
{
    unsigned random = (unsigned)(uintptr_t)number;
    while (running >= 0) {
        if (running)
            allocate_for_a_while(&random);
        parked++;
        while (!running)
            usleep(10);
        parked--;
    }
    return NULL;
}

static CUcontext make_anew(const char *how)
{
    CUcontext made;
    if (!strcmp(how, "destroy"))
        made = new_context(0);
    else
        OK(cuDevicePrimaryCtxRetain(&made, 0));
    OK(cuCtxSetCurrent(made));
    return made;
}

/* Each size has memory of its own below. */
static void use(void)
{
    static const size_t sizes[] = {100, 3000, 5000, 300 * KIB, 3 * MIB, 7 * MIB};
    for (int i = 0; i < 6; i++) {
        CUdeviceptr block = make(sizes[i]);
        OK(cuMemsetD8(block, 1, sizes[i]));
        OK(cuMemFree(block));
    }
}

int main(int count, char **argument)
{
    pthread_t thread[THREADS];
    CHECK(count == 3);
    OK(cuInit(0));
    if (!strcmp(argument[1], "release")) /* only the driver knows which is the last */
        cachalot_sim_allow_ended_events();
    context = make_anew(argument[1]);
    for (uintptr_t i = 0; i < THREADS; i++)
        OK(pthread_create(&thread[i], NULL, work, (void *)i));
    for (int rounds = atoi(argument[2]); rounds; rounds--) {
        running = 1;
        while (parked)
            usleep(10);
        usleep(300);
        end_context(argument[1], context);
        running = 0;
        while (parked < THREADS)
            usleep(10);
        context = make_anew(argument[1]);
        use();
    }
    running = -1;
    for (int i = 0; i < THREADS; i++)
        OK(pthread_join(thread[i], NULL));
    SAY(cuMemFree(make(100)));
    return 0;
}
