/* Two threads of real-time priority on one processor: while the higher one waits for the lower one without
 * sleeping, that never runs. Argument: what it waits for, a mark or a thread's cache. Exit code 77:
 * priorities are not to be had. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "driver_case.h"

#define ROUNDS 10000

static CUcontext context;
static int marks;
static atomic_int over;

static void become(int priority)
{
    struct sched_param parameters = {.sched_priority = priority};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters))
        _exit(77);
}

static void use(CUstream stream, size_t bytes)
{
    CUdeviceptr block;
    OK(cuMemAlloc(&block, bytes));
    if (marks)
        OK(cuMemsetD8Async(block, 0, bytes, stream));
    OK(cuMemFree(block));
}

static void *low(void *unused)
{
    CUstream stream;
    become(10);
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!over)
        use(stream, 1000);
    return unused;
}

int main(int count, char **argument)
{
    CUdeviceptr block;
    CUstream stream;
    pthread_t thread;
    cpu_set_t one;
    CHECK(count == 2);
    alarm(60);
    marks = strcmp(argument[1], "mark") == 0;
    context = begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    OK(sched_setaffinity(0, sizeof one, &one));
    OK(pthread_create(&thread, NULL, low, NULL));
    become(50);
    for (int i = 0; i < ROUNDS; i++) {
        usleep((useconds_t)(50 + i * 7919 % 20));
        if (marks)
            use(stream, 5000);
        else /* more than there is: all caches are looked through */
            CHECK(cuMemAlloc(&block, (size_t)1 << 40) == CUDA_ERROR_OUT_OF_MEMORY);
    }
    over = 1;
    OK(pthread_join(thread, NULL));
    return 0;
}
