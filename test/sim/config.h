/*
 * CACHALOT_SIM_*: read once, at the first call of anything.
 */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#define SIM_DEVICES_MAX 64

struct sim_config {
    int devices, driver, manual_clock, exports, peers;
    size_t capacity, pinned;
    uint64_t latency_ns;
    const char *fail, *delay, *shared;
};

const struct sim_config *config(void);

#endif
