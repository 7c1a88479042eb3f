/* SYNC_MEMOPS sticks to an allocation: no later one may have it, nor its neighbour. */
#include "driver_case.h"

#include <string.h>

/* Set: what was under way is done. Not set any more: that is said. */
static void set_on_and_off(void)
{
    unsigned on = 1, off = 0, is = 0;
    CUdeviceptr first = make(5 * MIB), second = make(5 * MIB);
    SAY(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first));
    SAY(is);
    OK(cachalot_sim_launch(NULL, 20 * 1000 * 1000, NULL, 0)); /* what the set waits for */
    OK(cuMemsetD8(first, 1, 5 * MIB));
    int code = cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first + 77);
    SAY(code);
    CHECK(code || !cachalot_sim_is_busy(first, 5 * MIB));
    SAY(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first));
    SAY(is);
    SAY(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, second));
    SAY(is);
    SAY(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first));
    SAY(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first));
    SAY(is);
    SAY(cuMemFree(first));
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first));
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, second));
    SAY(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, second));
    OK(cuMemFree(second));
}

/* Of two in one segment of ours, each has its own. */
static void set_beside(size_t bytes)
{
    unsigned on = 1, off = 0, is = 0;
    CUdeviceptr first = make(bytes), second = make(bytes);
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first));
    SAY(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, second));
    SAY(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first));
    SAY(is);
    SAY(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, second));
    SAY(is);
    OK(cuMemFree(first));
    OK(cuMemFree(second));
}

static int set_again_and_again(size_t bytes)
{
    unsigned on = 1;
    for (int i = 0; i < 300; i++) {
        CUdeviceptr pointer = make(bytes);
        OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
        OK(cuMemFree(pointer));
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1000, 4 * MIB, 40 * MIB};
    begin();
    if (argc > 2)
        return set_again_and_again((size_t)atoi(argv[2]) << 10);
    set_on_and_off();
    set_beside(1000);
    set_beside(300000);
    set_beside(4 * MIB);
    for (int i = 0; i < 3; i++) {
        unsigned on = 1, is = 0;
        CUdeviceptr pointer = make(sizes[i]);
        SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
        for (size_t at = 0; at < sizes[i]; at += MIB)
            OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer + at));
        SAY(is);
        SAY(cuMemFree(pointer));
        for (int again = 0; again < 50; again++) {
            pointer = make(sizes[i]);
            OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
            CHECK(!is);
            if (again % 2)
                OK(cuMemFree(pointer));
        }
        SAY(is);
    }
    return 0;
}
