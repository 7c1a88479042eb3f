/* Frees while the driver refuses what we ask of it for ourselves. Prints what each free and each
 * later request gives. Arguments: frees. */
#include "driver_case.h"

int main(int count, char **argument)
{
    CHECK(count == 2);
    int frees = atoi(argument[1]);
    begin();
    for (int i = 0; i < frees; i++) {
        CUdeviceptr block = 0;
        SAY(cuMemAlloc(&block, 3 * MIB));
        if (!block)
            continue;
        write_all(NULL, 1000, block, 3 * MIB);
        SAY(cuMemFree(block));
    }
    SAY(cuCtxSynchronize());
    return 0;
}
