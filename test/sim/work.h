/* A piece of work as it is submitted, captured, checked and carried out. */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

enum sim_kind {
    WORK_COPY,
    WORK_SET,
    WORK_KERNEL,
    WORK_HOST,
    WORK_MARK,
    WORK_WAIT,
    WORK_VALUE,
    WORK_TOUCH,
    WORK_ALLOC,
    WORK_FREE
};

struct sim_range {
    uintptr_t start;
    size_t bytes, pitch, rows; /* rows pieces of bytes bytes, pitch apart */
    int writes;
};

/* A box of bytes copied, or set when value_bytes is not 0. */
struct sim_transfer {
    uintptr_t to, from;
    size_t to_pitch, from_pitch, to_slice, from_slice;
    size_t width, height, depth;
    uint32_t value;
    unsigned value_bytes;
};

struct sim_work {
    enum sim_kind kind;
    const char *call;
    uint64_t ns;
    struct sim_transfer transfer;
    void *staged; /* pageable source, copied at submission as the driver does */
    const volatile int *spin;
    volatile int *signal;
    CUhostFn host;
    void *host_data;
    int visible;             /* the host may see its effect without asking: needs the thread */
    uintptr_t value_address; /* WORK_VALUE: wait for, or write, value_bytes bytes */
    uint64_t value;
    unsigned value_bytes, value_flags;
    int value_writes;
    struct sim_event *event;
    uint64_t event_turn;
    struct sim_memory *memory;
    struct sim_range own[4], *more;
    size_t range_count;
};

const struct sim_range *work_ranges(const struct sim_work *work);
void work_add_range(struct sim_work *work, struct sim_range range);
void work_copy(struct sim_work *to, const struct sim_work *from);
void work_dispose(struct sim_work *work);
const char *work_kind_name(const struct sim_work *work);
void transfer_carry_out(const struct sim_transfer *transfer);
int range_meets(const struct sim_range *a, const struct sim_range *b);
int work_value_met(const struct sim_work *work);
void work_value_write(const struct sim_work *work);

#endif
