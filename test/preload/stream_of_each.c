/* Each thread has a per-thread default stream of its own: what one frees under its work is not the
 * other's at once. Says how often the other was handed the same block. */
#include <pthread.h>

#include "driver_case.h"

enum { BYTES = 3 << 20 }; /* no thread keeps so much for itself */

static CUcontext context;
static CUdeviceptr freed;
static int same;

static void work(uint64_t ns)
{
    CUdeviceptr block = make(BYTES);
    write_all(CU_STREAM_PER_THREAD, ns, block, BYTES);
    same += block == freed;
    freed = block;
    OK(cuMemFree(block));
}

static void *other(void *unused)
{
    OK(cuCtxSetCurrent(context));
    work(1000);
    return unused;
}

int main(void)
{
    context = begin();
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        work(1000000);
        OK(pthread_create(&thread, NULL, other, NULL));
        OK(pthread_join(thread, NULL));
        OK(cuCtxSynchronize());
    }
    SAY(same);
    return 0;
}
