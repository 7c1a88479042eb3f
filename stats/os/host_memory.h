/* How much memory the host has, and has left, for this process. */
#ifndef CACHALOT_STATS_OS_HOST_MEMORY_H
#define CACHALOT_STATS_OS_HOST_MEMORY_H

#include <stdint.h>

struct host_memory {
    uint64_t total, available; /* bytes */
};

/* Fills *memory with the host's memory, or with that of a control group of the process where it leaves
 * less. Opens files. Returns 0, or -1 if the system does not say. */
int host_memory_read(struct host_memory *memory);

#endif
