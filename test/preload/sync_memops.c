/* SYNC_MEMOPS sticks to an allocation: no later one may have it. */
#include "driver_case.h"

int main(void)
{
    static const size_t sizes[] = {1000, 4 * MIB, 40 * MIB};
    begin();
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
