/* Several contexts on one device: memory of each is freed while another or none is current; then
 * more contexts than we keep books for. Argument: how many. */
#include "driver_case.h"

int main(int count, char **argument)
{
    static CUcontext context[1000];
    static CUdeviceptr block[1000], more[1000];
    CHECK(count == 2);
    int contexts = atoi(argument[1]);
    OK(cuInit(0));
    for (int i = 0; i < contexts; i++) {
        context[i] = new_context(0);
        block[i] = make(1000);
        more[i] = make(1000);
        write_all(NULL, 1000, block[i], 1000);
        if (i)
            OK(cuCtxPopCurrent(NULL));
    }
    for (int i = 0; i < contexts; i++)
        OK(cuMemFree(block[i]));
    OK(cuCtxSetCurrent(NULL));
    for (int i = 0; i < contexts; i++)
        OK(cuMemFree(more[i]));
    for (int i = 0; i < contexts; i++) {
        OK(cuCtxSetCurrent(context[i]));
        OK(cuMemFree(make(1000)));
        OK(cuCtxDestroy(context[i]));
    }
    size_t available, total;
    new_context(0);
    OK(cuMemGetInfo(&available, &total));
    SAY(total - available);
    return 0;
}
