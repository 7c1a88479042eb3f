/* RLIMIT_FSIZE: a write beyond it is not an error but a SIGXFSZ, which would kill the program. */
#ifndef CACHALOT_STATS_OS_FILE_LIMIT_H
#define CACHALOT_STATS_OS_FILE_LIMIT_H

#include <stdint.h>
#include <sys/resource.h>

/* Whether a file may be `bytes` long. */
static inline int file_limit_allows(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes <= limit.rlim_cur;
}

#endif
