/* A kernel spins until the host says so, and the host allocates before it does: this may not wait
 * for it. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver_case.h"

#define BLOCK (30 * MIB)

static volatile int flag;
static CUcontext context;
static CUdeviceptr theirs;
static pthread_t thread;
static atomic_int freed;

static void *free_theirs(void *unused)
{
    OK(cuCtxSetCurrent(context));
    OK(cuMemFree(theirs)); /* natively this waits for the flag */
    freed = 1;
    return unused;
}

static void release(void)
{
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
}

int main(int count, char **argument)
{
    CUstream stream;
    CUdeviceptr block, again = 0, touched;
    CHECK(count == 2);
    context = begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    int another = strcmp(argument[1], "another") == 0, used = strcmp(argument[1], "used") == 0;
    int async = strcmp(argument[1], "async") == 0;
    touched = make(1000);
    block = make(BLOCK);
    struct cachalot_sim_range range = {touched, 1000, 1};
    if (another)
        theirs = make(BLOCK);
    if (used)
        write_all(NULL, 3000000, block, BLOCK);
    if (!another && !async)
        OK(cuMemFree(block));
    OK(cachalot_sim_launch_spin(stream, &flag, &range, 1));
    if (async) {
        OK(cuMemFreeAsync(block, stream)); /* natively this waits for nothing */
        usleep(20000);
    }
    if (another) {
        OK(pthread_create(&thread, NULL, free_theirs, NULL));
        for (int i = 0; i < 500 && !freed; i++)
            usleep(1000); /* it is past its free, or in it for good */
    }
    SAY(cuMemAlloc(&again, BLOCK));
    SAY(cuMemAlloc(&touched, 1000));
    release();
    if (another)
        OK(pthread_join(thread, NULL));
    if (again) {
        write_all(NULL, 1000, again, BLOCK);
        SAY(cuMemFree(again));
    }
    SAY(cuCtxSynchronize());
    return 0;
}
