/* Three threads allocate and free, then all sleep for argv[1] ms. argv[2]: a kernel spins
 * meanwhile. Each keeps three blocks, of 8.25 MiB in all. */
#include <pthread.h>
#include <time.h>

#include "driver_case.h"

#define BLOCKS 300

static pthread_barrier_t freed;
static volatile int flag;
static CUcontext context;

static void work(CUdeviceptr *blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemAlloc_v2(&blocks[i],
                         i % 10 ? (size_t)(i % 7 + 1) * 8 * KIB : (size_t)(i / 10 + 1) * MIB / 4));
    for (int i = 0; i < BLOCKS; i++)
        if (i % 100)
            OK(cuMemFree_v2(blocks[i]));
}

static void *allocate(void *unused)
{
    CUdeviceptr blocks[BLOCKS];
    OK(cuCtxSetCurrent(context));
    work(blocks);
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&freed);
    return unused;
}

static void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time))
        ;
}

int main(int argc, char **argv)
{
    pthread_t thread[3];
    context = begin();
    pthread_barrier_init(&freed, NULL, 4);
    for (int i = 0; i < 3; i++)
        OK(pthread_create(&thread[i], NULL, allocate, NULL));
    pthread_barrier_wait(&freed);
    if (argc > 2)
        OK(cachalot_sim_launch_spin(NULL, &flag, NULL, 0));
    sleep_ms(atol(argv[1]));
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    pthread_barrier_wait(&freed);
    for (int i = 0; i < 3; i++)
        OK(pthread_join(thread[i], NULL));
    return 0;
}
