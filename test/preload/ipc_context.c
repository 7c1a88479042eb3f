/* Memory of another process is opened in a context. One thread's end of it is under way (closing), or
 * was refused by the driver (refused: CACHALOT_SIM_FAIL), while another context ends: what was opened
 * stays mapped as long as its context lives. Argument: which. */
#include "driver_case.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define BLOCK (20 * MIB)

static _Atomic int within;
static _Thread_local int ends;
static CUcontext user;

static void hold(const char *function, int returning)
{
    if (!ends || returning || strncmp(function, "cuCtxDestroy", 12))
        return;
    atomic_store(&within, 1);
    while (atomic_load(&within))
        usleep(100);
}

static void *destroy(void *unused)
{
    ends = 1;
    OK(cuCtxDestroy(user));
    return unused;
}

/* The owner of the memory, until nobody writes to its pipe any more. */
static void lend(int out, int in)
{
    CUipcMemHandle handle;
    char byte;
    begin();
    OK(cuIpcGetMemHandle(&handle, make(BLOCK)));
    CHECK(write(out, &handle, sizeof handle) == sizeof handle);
    CHECK(read(in, &byte, 1) == 0);
}

static CUcontext served_context(void)
{
    CUcontext context = new_context(0);
    OK(cuMemFree(make(MIB)));
    return context;
}

static void end_both(int refused, CUdeviceptr opened)
{
    pthread_t thread;
    CUcontext other = served_context();
    unsigned char byte;
    if (!refused) {
        cachalot_sim_subscribe(hold);
        CHECK(pthread_create(&thread, NULL, destroy, NULL) == 0);
        while (!atomic_load(&within))
            usleep(100);
        OK(cuCtxDestroy(other));
        atomic_store(&within, 0);
        CHECK(pthread_join(thread, NULL) == 0);
        return;
    }
    SAY(cuCtxDestroy(user));
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(user));
    SAY(cuMemcpyDtoH(&byte, opened, 1));
    SAY(cuIpcCloseMemHandle(opened));
}

int main(int count, char **argument)
{
    int down[2], up[2];
    CUipcMemHandle handle;
    CUdeviceptr opened;
    CUstream stream;
    CHECK(count == 2 && !pipe(down) && !pipe(up));
    pid_t child = fork();
    if (!child) {
        close(down[1]);
        lend(up[1], down[0]);
        return 0;
    }
    CHECK(read(up[0], &handle, sizeof handle) == sizeof handle);
    begin();
    OK(cuMemFree(make(MIB)));
    user = served_context();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuIpcOpenMemHandle(&opened, handle, 1));
    struct cachalot_sim_range range = {opened, MIB, 0};
    OK(cachalot_sim_launch(stream, 100 * 1000 * 1000, &range, 1));
    OK(cuCtxPopCurrent(NULL));
    end_both(strcmp(argument[1], "refused") == 0, opened);
    close(down[1]);
    CHECK(waitpid(child, NULL, 0) == child);
    return 0;
}
