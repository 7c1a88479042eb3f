/* Primary contexts that end, and what the host has left of each: KiB per context. */
#include "driver_case.h"

#define SOME 100
#define ALL 500

static long long resident_kib(void)
{
    long long kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %lld", &kib) == 1)
            break;
    fclose(file);
    return kib;
}

int main(void)
{
    long long before = 0;
    for (int i = 0; i < ALL; i++) {
        CUdeviceptr block;
        begin();
        OK(cuMemAlloc(&block, 1000));
        OK(cuMemFree(block));
        OK(cuDevicePrimaryCtxRelease(0));
        if (i == SOME)
            before = resident_kib();
    }
    SAY((resident_kib() - before) / (ALL - SOME));
    return 0;
}
