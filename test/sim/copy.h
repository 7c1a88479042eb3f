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

/* One end of a 2D or 3D copy. */
struct sim_place {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z, pitch, height;
};

CUresult transfer_submit(CUstream stream, const struct sim_transfer *transfer, enum copy_wait wait,
                         const char *call);
CUresult copy_line(CUstream stream, uintptr_t to, uintptr_t from, size_t bytes, enum copy_wait wait,
                   const char *call);
CUresult copy_box(CUstream stream, const struct sim_place *to, const struct sim_place *from,
                  struct sim_transfer box, enum copy_wait wait, const char *call);
/* What batches ask of their stream and arguments. */
CUresult batch_stream(CUstream stream, int sound);
int address_is_known(uintptr_t address);

#endif
