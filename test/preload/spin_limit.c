/* The known limit of lanes (head of allocator/reuse/lane.c): one thread frees while its kernel waits for
 * what another thread submits elsewhere, later. Natively the free is held up until then. Prints
 * whether it ended by itself. Argument: within how many seconds. */
#include <pthread.h>
#include <stdatomic.h>

#include "driver_case.h"

static CUcontext context;
static volatile int flag;
static atomic_int ended, freeing, freed;

static void *free_and_go_on(void *unused)
{
    OK(cuCtxSetCurrent(context));
    CUdeviceptr block = make(4096), touched = make(4096);
    struct cachalot_sim_range range = {touched, 4096, 1};
    OK(cachalot_sim_launch_spin(NULL, &flag, &range, 1));
    freeing = 1;
    OK(cuMemFree(block));
    freed = 1;
    return unused;
}

static void *feed(void *unused)
{
    CUstream stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!freeing)
        usleep(100);
    for (int i = 0; i < 500 && !freed; i++)
        usleep(1000); /* the other is past its free, or in it for good */
    OK(cachalot_sim_launch_signal(stream, 1000, &flag, NULL, 0));
    OK(cuCtxSynchronize());
    ended = 1;
    return unused;
}

int main(int count, char **argument)
{
    pthread_t thread[2];
    CHECK(count == 2);
    context = begin();
    OK(pthread_create(&thread[0], NULL, free_and_go_on, NULL));
    OK(pthread_create(&thread[1], NULL, feed, NULL));
    for (int i = 0; i < 100 * atoi(argument[1]) && !ended; i++)
        usleep(10000);
    SAY(ended);
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++)
        OK(pthread_join(thread[i], NULL));
    return 0;
}
