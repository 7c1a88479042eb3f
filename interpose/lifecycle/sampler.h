/* The series of device memory in the page: looks of the service thread at the numbers of each device
 * in use. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_SAMPLER_H
#define CACHALOT_INTERPOSE_LIFECYCLE_SAMPLER_H

#include <stdint.h>

/* One look, which calls no driver. Returns whether a number has changed since the last one. The caller
 * has the lock of reports, as for the others. */
int sampler_look(void);

/* Asks the driver how much of each device is free; the next look notes that. */
void sampler_ask_driver(void);

/* How long to wait for the next look, while numbers change. */
uint64_t sampler_interval_ns(void);

#endif
