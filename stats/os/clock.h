/* The system's clocks in ns. */
#ifndef CACHALOT_STATS_OS_CLOCK_H
#define CACHALOT_STATS_OS_CLOCK_H

#include <stdint.h>
#include <time.h>

/* 0 where there is no such clock. */
static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return 0;
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

#endif
