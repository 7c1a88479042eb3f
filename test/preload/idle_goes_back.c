/* 100 MiB of 200 were used and freed: there is room for 150 of the driver's own. */
#include "driver_case.h"

int main(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    begin();
    OK(cuMemFree(make(100 * MIB)));
    SAY(cuMemCreate(&handle, 150 * MIB, &properties, 0));
    return 0;
}
