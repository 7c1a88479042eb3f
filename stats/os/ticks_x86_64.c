#include "stats/os/ticks.h"

#include <sys/prctl.h>

uint64_t ticks_now(void)
{
    return __builtin_ia32_rdtsc();
}

int ticks_are_readable(void)
{
    int mode = PR_TSC_ENABLE;
    return prctl(PR_GET_TSC, &mode) != 0 || mode == PR_TSC_ENABLE;
}
