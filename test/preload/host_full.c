/* The host has no memory for the library's books while N threads take and give back blocks: the
 * driver serves them, and the cache what comes after. Arguments: threads, bytes. */
#include "driver_case.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#define BLOCKS 20000
#define MOST_THREADS 4

static CUcontext context;
static size_t bytes;

static void *work(void *blocks)
{
    CUdeviceptr *block = blocks;
    uint32_t seen;
    OK(cuCtxSetCurrent(context));
    for (uint32_t i = 0; i < BLOCKS; i++) {
        block[i] = make(bytes + i % 7 * bytes);
        OK(cuMemsetD32(block[i], i, 1));
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        OK(cuMemcpyDtoH(&seen, block[i], sizeof seen));
        CHECK(seen == i);
        OK(cuMemFree(block[i]));
    }
    return NULL;
}

int main(int count, char **argument)
{
    static CUdeviceptr block[MOST_THREADS][BLOCKS];
    pthread_t thread[MOST_THREADS];
    void (*fail)(const char *) = NULL;
    CHECK(count == 3);
    int threads = atoi(argument[1]);
    bytes = strtoul(argument[2], NULL, 10);
    context = begin();
    OK(cuMemFree(make(100)));
    OK(cuMemFree(make(5 * MIB)));
    *(void **)&fail = dlsym(RTLD_DEFAULT, "fail_libc");
    if (fail)
        fail("mmap64:1+");
    for (int i = 0; i < threads; i++)
        CHECK(!pthread_create(&thread[i], NULL, work, block[i]));
    for (int i = 0; i < threads; i++)
        CHECK(!pthread_join(thread[i], NULL));
    if (fail)
        fail("mmap64:0");
    work(block[0]);
    OK(cuCtxSynchronize());
    return 0;
}
