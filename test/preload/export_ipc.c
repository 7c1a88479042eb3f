/* IPC handles of the first and the second block of a size, after N others were exported, and where
 * they lie in what the peer would map. Arguments: KiB of a block. */
#include <string.h>

#include "driver_case.h"

static void export(CUdeviceptr pointer)
{
    CUipcMemHandle handle;
    uint64_t base;
    CUresult result = cuIpcGetMemHandle(&handle, pointer);
    memcpy(&base, handle.reserved + 8,
           sizeof base); /* the simulated device's handles say it there */
    printf("export: %d, offset %lld\n", result, result ? 0 : (long long)(pointer - base));
}

int main(int count, char **argument)
{
    CHECK(count == 2);
    size_t bytes = (size_t)atoi(argument[1]) * KIB;
    begin();
    CUdeviceptr first = make(bytes), second = make(bytes);
    export(first);
    export(second);
    export(make(bytes)); /* after an export */
    export(make(bytes));
    SAY(cuMemFree(first));
    export(make(bytes));
    CUdeviceptr gone = make(bytes);
    SAY(cuMemFree(gone));
    export(gone);
    export(0x1234);
    return 0;
}
