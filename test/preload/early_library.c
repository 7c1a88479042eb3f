/* A library that uses CUDA in its constructor, so that its exit handler and ours come last, and frees in
 * its destructor. How, says the variable WAY. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>

#include "case.h"

void keep(void);
static void *kept[2];
static const char *way;

__attribute__((constructor)) static void begins(void)
{
    way = getenv("WAY");
    OK(cudaMalloc(&kept[0], MIB));
}

void keep(void)
{
    OK(cudaMalloc(&kept[1], 3 * MIB));
}

static void *release(void *unused)
{
    OK(cudaFree(kept[0]));
    OK(cudaFree(kept[1]));
    return unused;
}

static void release_at_last(void)
{
    release(NULL);
}

__attribute__((destructor)) static void ends(void)
{
    pthread_t thread;
    if (strstr(way, "flush"))
        fflush(NULL);
    if (strstr(way, "nothing"))
        return;
    if (strstr(way, "handler")) {
        OK(atexit(release_at_last));
    } else if (strstr(way, "thread")) {
        OK(pthread_create(&thread, NULL, release, NULL));
        OK(pthread_join(thread, NULL));
    } else {
        release(NULL);
    }
    if (strstr(way, "_exit"))
        _exit(5);
    if (strstr(way, "abort"))
        abort();
}
