/*
 * Submitting copies and sets: which ranges they name, and when the host waits for them.
 */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "work.h"

#include <cuda.h>

enum copy_wait { COPY_ASYNC, COPY_SYNC };

/* A linear, pitched allocation behind a CUarray. */
struct sim_array {
    struct sim_memory *memory;
    size_t pitch, slice;
};

CUresult transfer_submit(CUstream stream, const struct sim_transfer *transfer, enum copy_wait wait,
                         const char *call);
int address_is_known(uintptr_t address);

#endif
