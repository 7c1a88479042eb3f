/* A context ends, by the way named, while it has blocks; late frees; then the same once more. */
#include <string.h>

#include "driver_case.h"

static void say_late_free(CUdeviceptr pointer)
{
    SAY(cuMemFree(pointer));
}

static void end(const char *how, CUcontext context)
{
    if (strcmp(how, "destroy") == 0)
        SAY(cuCtxDestroy(context));
    else if (strcmp(how, "reset") == 0)
        SAY(cuDevicePrimaryCtxReset(0));
    else
        SAY(cuDevicePrimaryCtxRelease(0));
}

int main(int count, char **argument)
{
    CHECK(count == 2);
    OK(cuInit(0));
    for (int round = 0; round < 3; round++) {
        CUcontext context;
        if (strcmp(argument[1], "destroy") == 0) {
            context = new_context(0);
        } else {
            OK(cuDevicePrimaryCtxRetain(&context, 0));
            OK(cuCtxSetCurrent(context));
        }
        CUdeviceptr held = make(30 * MIB), freed = make(3 * MIB), small = make(100);
        write_all(NULL, 100000, freed, 3 * MIB);
        SAY(cuMemFree(freed));
        end(argument[1], context);
        say_late_free(held);
        say_late_free(small);
        say_late_free(freed);
        CUdeviceptr late;
        SAY(cuMemAlloc(&late, 100));
    }
    size_t available, total;
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemGetInfo(&available, &total));
    SAY(total - available);
    return 0;
}
