/* Allocates and frees for as long as it is told, by several threads on several devices, then shows
 * what is held and waits for a line. Arguments: operations, threads, devices, blocks held by each
 * thread, largest block. Ten times on the way: operations so far, and bytes of this process in
 * memory. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver_case.h"

static unsigned long operations, threads, devices, held, largest;
static CUcontext contexts[64];
static atomic_ulong done, live, live_bytes;

struct worker {
    pthread_t thread;
    uint64_t random;
    unsigned long number;
    struct held {
        CUdeviceptr pointer;
        unsigned long bytes;
    } * block;
};

static unsigned long dice(struct worker *w, unsigned long sides)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (w->random >> 33) % sides;
}

static long resident(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Most are small, as programs' are. */
static unsigned long some_bytes(struct worker *w)
{
    return 1 + dice(w, dice(w, 8) ? largest / 64 + 1 : largest);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    unsigned long mine = operations / threads / 2, bytes = 0, count = 0;
    OK(cuCtxSetCurrent(contexts[w->number % devices]));
    for (unsigned long i = 0; i < mine; i++) {
        struct held *block = &w->block[dice(w, held)];
        if (block->pointer) {
            OK(cuMemFree_v2(block->pointer));
            bytes -= block->bytes;
            count--;
        }
        block->bytes = some_bytes(w);
        OK(cuMemAlloc_v2(&block->pointer, block->bytes));
        bytes += block->bytes;
        count++;
        if (w->number == 0 && mine >= 10 && (i + 1) % (mine / 10) == 0)
            printf("at: %lu %ld\n", (i + 1) / (mine / 10), resident());
    }
    atomic_fetch_add(&done, 2 * mine - count);
    atomic_fetch_add(&live, count);
    atomic_fetch_add(&live_bytes, bytes);
    return NULL;
}

int main(int count, char **argument)
{
    CHECK(count == 6);
    unsigned long *const values[] = {&operations, &threads, &devices, &held, &largest};
    for (int i = 0; i < 5; i++)
        *values[i] = strtoul(argument[i + 1], NULL, 10);
    OK(cuInit(0));
    CHECK(devices <= 64);
    for (unsigned i = 0; i < devices; i++)
        OK(cuDevicePrimaryCtxRetain(&contexts[i], (int)i));
    struct worker *workers = calloc(threads, sizeof *workers);
    for (unsigned long i = 0; i < threads; i++) {
        workers[i] =
            (struct worker){.random = i, .number = i, .block = calloc(held, sizeof(struct held))};
        OK(pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    for (unsigned long i = 0; i < threads; i++)
        OK(pthread_join(workers[i].thread, NULL));
    printf("held: %lu %lu %lu\n", done, live, live_bytes);
    fflush(stdout);
    (void)getchar();
    for (unsigned long i = 0; i < threads; i++) {
        for (unsigned long k = 0; k < held; k++)
            if (workers[i].block[k].pointer)
                OK(cuMemFree_v2(workers[i].block[k].pointer));
        free(workers[i].block);
    }
    free(workers);
    return 0;
}
